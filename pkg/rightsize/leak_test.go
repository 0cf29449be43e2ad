// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// at returns a series of minutes from a start.
func at(from time.Time, n int, value func(i int) float64) series.Series {
	s := minutes(n, value)
	s.Start = from
	return s
}

// hourly returns a series of hours with one value.
func hourly(from time.Time, n int, v float64) series.Series {
	s := hours(n, same(v))
	s.Start = from
	return s
}

// TestRecommend_NeededReplicaIsNoLeak lists replicas that are larger than others for other reasons than a leak. Each one is
// tried with and without a known page cache.
func TestRecommend_NeededReplicaIsNoLeak(t *testing.T) {
	const fortnight = 14 * 1440
	for name, c := range map[string]struct {
		// pods are the memory of pods in MiB, by minute, over the whole window.
		pods []func(i int) float64
		// short are pods that live for some minutes from a time on, with a constant memory.
		short []struct {
			from    time.Duration
			minutes int
		}
		need float64
	}{
		"a pod after roll-outs": {
			pods: []func(int) float64{func(i int) float64 { return min(1024, 300+float64(i)) }},
			short: []struct {
				from    time.Duration
				minutes int
			}{{0, 180}, {3 * time.Hour, 180}, {6 * time.Hour, 180}, {9 * time.Hour, 180}},
			need: 1024,
		},
		"base pods beside those of an autoscaler": {
			pods: []func(int) float64{
				func(i int) float64 { return min(1000, 400+float64(i)) },
				func(i int) float64 { return min(1000, 400+float64(i)) },
			},
			short: dailyPods(14, 6),
			need:  1000,
		},
		"a leader elected on day 5": {
			pods: []func(int) float64{same(300), same(300), same(300), same(300), func(i int) float64 {
				if i > 5*1440 {
					return 800
				}

				return 300
			}},
			need: 800,
		},
		"leaders elected in turn": {
			pods: []func(int) float64{leads(0, 4), leads(4, 8), leads(8, 14), same(300), same(300)},
			need: 800,
		},
		"a leader that warms up for four days": {
			pods: []func(int) float64{same(300), same(300), same(300), same(300), func(i int) float64 {
				return 300 + 500*min(1, max(0, float64(i-5*1440)/(4*1440)))
			}},
			need: 800,
		},
		"a leader that moves up in two steps": {
			pods: []func(int) float64{same(300), same(300), same(300), same(300), func(i int) float64 {
				return 300 + 250*float64(min(2, i/(5*1440)))
			}},
			need: 800,
		},
		"an old pod that grows beside young ones": {
			pods:  []func(int) float64{func(i int) float64 { return 400 + 600*float64(i)/fortnight }},
			short: dailyPods(14, 6),
			need:  1000,
		},
	} {
		for _, cacheKnown := range []bool{false, true} {
			p := NewProfile()
			add := func(pod string, s series.Series) {
				peak := 0.0
				for i := range s.Values {
					s.Values[i] *= 1 << 20
					peak = max(peak, s.Values[i])
				}

				p.AddMemory(Usage{Pod: pod, Series: s})
				if cacheKnown {
					p.AddUnreclaimable(Usage{Pod: pod, Series: hourly(s.Start, (len(s.Values)+59)/60, peak-(10<<20))}, WithoutActiveFile)
				}
			}

			for i, value := range c.pods {
				add(fmt.Sprint("long-", i), minutes(fortnight, value))
			}

			for i, short := range c.short {
				add(fmt.Sprint("short-", i), at(start.Add(short.from), short.minutes, same(400)))
			}

			r := Recommend(Input{Container: "app", Profile: p, Now: start.Add(14 * day)}, mustPolicy(t, DefaultPolicy))
			if got := float64(*r.Target.MemoryRequest) / (1 << 20); got < c.need || got > 1.25*c.need || hasFlag(r.Memory, FlagLeak) {
				t.Errorf("%s, page cache known %t: request %.0fMi with the flags %v, want %.0fMi to %.0fMi without a leak",
					name, cacheKnown, got, r.Memory.Flags, c.need, 1.25*c.need)
			}
		}
	}
}

// dailyPods returns pods that live for an hour at noon of each day.
func dailyPods(days, count int) (pods []struct {
	from    time.Duration
	minutes int
},
) {
	for i := range days * count {
		pods = append(pods, struct {
			from    time.Duration
			minutes int
		}{time.Duration(i/count)*day + 12*time.Hour, 60})
	}

	return pods
}

// leads returns the memory of a pod that is the leader for some days.
func leads(from, to int) func(i int) float64 {
	return func(i int) float64 {
		if i >= from*1440 && i < to*1440 {
			return 800
		}

		return 300
	}
}

// TestRecommend_OnlyLeakingPodsOnADay checks a day on which no pod but the leaking one was observed: what is excluded is unknown, not zero.
func TestRecommend_OnlyLeakingPodsOnADay(t *testing.T) {
	for _, cacheKnown := range []bool{false, true} {
		p := NewProfile()
		grown := func(i int) float64 { return (200 + 100*float64(i)/1440) * (1 << 20) }
		add := func(pod string, s series.Series) {
			p.AddMemory(Usage{Pod: pod, Series: s})
			if cacheKnown {
				p.AddUnreclaimable(Usage{Pod: pod, Series: hourly(s.Start, (len(s.Values)+59)/60, s.Values[len(s.Values)-1])}, WithoutActiveFile)
			}
		}

		add("leaking", minutes(10*1440, grown))
		for i := range 4 { // The siblings are observed from the third day on.
			add(fmt.Sprint("web-", i), at(start.Add(2*day), 8*1440, same(200*(1<<20))))
		}

		d := p.Days()[0]
		leaking := map[uint32]bool{podHash("leaking"): true}
		if got := d.requiredPeak(0.5, leaking); got < 299*(1<<20) {
			t.Errorf("page cache known %t: requiredPeak of a day with the excluded pod alone = %.0f, want its 299Mi", cacheKnown, got)
		}
	}
}
