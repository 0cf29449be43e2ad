// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// manyRuns returns a job with runs of one minute. Half of them need 2 cores and little memory, the others little CPU and much memory.
// As a collector does, it merges the days of CPU and of memory.
func manyRuns(days, perDay int) Input {
	all := NewProfile()
	for _, memory := range []bool{false, true} {
		for d := range days {
			part := NewProfile()
			for k := range perDay {
				from := start.Add(time.Duration(d)*day + time.Duration(k)*day/time.Duration(perDay))
				cores, bytes := 0.05, 400*(1<<20)+float64(k)*1024
				if k%2 == 0 {
					cores, bytes = 2, 100*(1<<20)+float64(k)*1024
				}

				u := Usage{Pod: fmt.Sprintf("tick-%d-%d", d, k), Started: from}
				if memory {
					u.Series = at(from, 1, same(bytes))
					part.AddMemory(u)
				} else {
					u.Series = at(from, 1, same(cores))
					part.AddCPU(u)
				}
			}

			all.Merge(part)
		}
	}

	return Input{Container: "job", Profile: all, Now: start.Add(time.Duration(days) * day), RunsToCompletion: true}
}

// TestRecommend_ManyRuns checks jobs with more runs a day than a profile keeps: each resource is sized by runs that are a fair sample
// for it, and memory by the largest.
func TestRecommend_ManyRuns(t *testing.T) {
	for _, perDay := range []int{500, 1440, 6000} {
		in := manyRuns(3, perDay)
		r := Recommend(in, mustPolicy(t, DefaultPolicy))
		checkRecommendation(t, r)

		if r.CPU.Status != Ready || *r.Target.CPURequest < 2000 || *r.Target.CPURequest > 2400 {
			t.Errorf("%d runs a day: CPU %+v with the target %s, want 2 to 2.4 cores", perDay, r.CPU, jsonText(r.Target))
		}

		largest := 400*(1<<20) + float64(perDay-1)*1024
		if got := float64(*r.Target.MemoryRequest); got < largest || got > 1.25*largest {
			t.Errorf("%d runs a day: memory request %.0f, want %.0f to %.0f", perDay, got, largest, 1.25*largest)
		}

		heavy, light := 0, 0
		for _, d := range in.Profile.Days() {
			for _, p := range d.Peaks {
				switch {
				case p.CPU > 1:
					heavy++
				case p.CPU > 0:
					light++
				}
			}
		}

		if share := float64(heavy) / float64(heavy+light); math.Abs(share-0.5) > 0.05 || heavy+light < min(3*perDay, 3*maxPodsPerDay) {
			t.Errorf("%d runs a day: %d runs with a share of %.2f that need 2 cores, want about half of at least %d", perDay, heavy+light, share, min(3*perDay, 3*maxPodsPerDay))
		}
	}
}

// TestRecommend_PodsThatLiveForMinutes checks pods whose whole life is their start, as of functions that scale to zero.
func TestRecommend_PodsThatLiveForMinutes(t *testing.T) {
	for _, c := range []struct{ perDay, minutes int }{{200, 3}, {200, 1}, {24, 4}, {12, 5}} {
		p := NewProfile()
		for d := range 14 {
			for k := range c.perDay {
				from := start.Add(time.Duration(d)*day + time.Duration(k)*day/time.Duration(c.perDay) + 2*time.Minute)
				pod := fmt.Sprintf("fn-%d-%d", d, k)
				p.AddCPU(Usage{Pod: pod, Started: from, Series: at(from, c.minutes, same(0.8))})
				p.AddMemory(Usage{Pod: pod, Started: from, Series: at(from, c.minutes, same(200*(1<<20)))})
			}
		}

		r := Recommend(Input{Container: "app", Profile: p, Now: start.Add(14 * day)}, mustPolicy(t, DefaultPolicy))
		checkRecommendation(t, r)

		if r.CPU.Status != Ready || *r.Target.CPURequest < 800 || *r.Target.CPURequest > 1000 || r.Memory.Status != Ready {
			t.Errorf("%d pods a day of %d minutes: CPU %+v, target %s; want 0.8 to 1 core", c.perDay, c.minutes, r.CPU, jsonText(r.Target))
		}
	}
}

// TestRecommend_StartAtMidnight checks that the start of a pod that lives on is no steady usage, also if midnight is within it.
func TestRecommend_StartAtMidnight(t *testing.T) {
	p := NewProfile()
	started := start.Add(day - 3*time.Minute)
	p.AddCPU(Usage{Pod: "web", Started: started, Series: at(started, 600, func(i int) float64 {
		if i < 5 {
			return 4
		}

		return 0.2
	})})

	for _, d := range p.Days() {
		if d.StartCPU != 4 || d.CPU.Total() > 0 && d.CPU.Max() > 0.21 {
			t.Errorf("%v: steady CPU up to %v, at the start %v, want 0.2 and 4", d.Day, d.CPU.Max(), d.StartCPU)
		}
	}
}
