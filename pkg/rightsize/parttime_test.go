// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// partTime returns a container that runs for some hours from eight o'clock on days that runs selects.
func partTime(days, hours int, runs func(d int) bool) Input {
	p := NewProfile()
	for d := range days {
		if !runs(d) {
			continue
		}

		from := start.Add(time.Duration(d)*day + 8*time.Hour)
		p.AddCPU(Usage{Pod: fmt.Sprint("dev-", d), Series: at(from, hours*60, same(0.2))})
		p.AddMemory(Usage{Pod: fmt.Sprint("dev-", d), Series: at(from, hours*60, same(500*(1<<20)))})
	}

	return Input{Container: "app", Profile: p, Now: start.Add(time.Duration(days) * day)}
}

func TestRecommend_PartTime(t *testing.T) {
	weekdays := func(d int) bool { return d%7 < 5 }
	always := func(int) bool { return true }
	for name, c := range map[string]struct {
		in   Input
		want Status
		text string
	}{
		"9 hours on weekdays":         {partTime(60, 9, weekdays), Ready, ""},
		"9 hours on weekdays, 8 days": {partTime(8, 9, weekdays), Ready, ""},
		"10 hours daily":              {partTime(60, 10, always), Ready, ""},
		"an hour daily":               {partTime(14, 1, always), Ready, ""},
		"an hour daily, for 3 days":   {partTime(3, 1, always), Learning, "learning, 2.0 of 7 days"},
		"Mondays":                     {partTime(60, 6, func(d int) bool { return d%7 == 0 }), Ready, ""},
		"one Monday":                  {partTime(6, 6, func(d int) bool { return d == 0 }), Learning, "learning, 0.2 of 7 days"},
		"weekends":                    {partTime(60, 9, func(d int) bool { return d%7 >= 5 }), Ready, ""},
		"two days that do not repeat": {partTime(14, 6, func(d int) bool { return d == 0 || d == 11 }), Learning, "learning, 2 of 7 days"},
	} {
		r := Recommend(c.in, mustPolicy(t, DefaultPolicy))
		checkRecommendation(t, r)

		for _, s := range []Sizing{r.CPU, r.Memory} {
			if s.Status != c.want || c.text != "" && s.Message != c.text {
				t.Errorf("%s: %s %q, want %s %q", name, s.Status, s.Message, c.want, c.text)
			}
		}

		if cpu := r.Target.CPURequest; cpu != nil && (*cpu < 200 || *cpu > 240) {
			t.Errorf("%s: CPU request %s, want 200m to 240m", name, units.FormatCPU(*cpu))
		}
	}
}

// TestRecommend_PartTimeLevelShift checks that a part-time container follows a new level on the next day.
func TestRecommend_PartTimeLevelShift(t *testing.T) {
	p := NewProfile()
	for d := range 14 {
		from := start.Add(time.Duration(d)*day + 8*time.Hour)
		cores := 0.2
		if d == 13 {
			cores = 1
		}

		p.AddCPU(Usage{Pod: fmt.Sprint("dev-", d), Series: at(from, 9*60, same(cores))})
	}

	r := Recommend(Input{Container: "app", Profile: p, Now: start.Add(14 * day)}, mustPolicy(t, DefaultPolicy))
	if *r.Target.CPURequest < 1000 || !hasFlag(r.CPU, FlagLevelShift) {
		t.Errorf("a new level on the last day: request %s with the flags %v, want 1 core and %s", units.FormatCPU(*r.Target.CPURequest), r.CPU.Flags, FlagLevelShift)
	}
}

// TestRecommend_WeeklyPeak checks that a peak of the same weekday is covered or named, with its cost both ways.
func TestRecommend_WeeklyPeak(t *testing.T) {
	load := func(peak float64, hours int, on func(d int) bool) func(i int) float64 {
		return func(i int) float64 {
			if minute := i % 1440; on(i/1440) && minute >= 600 && minute < 600+60*hours {
				return peak
			}

			return 0.2
		}
	}

	monday := func(d int) bool { return d%7 == 0 }
	for name, c := range map[string]struct {
		value func(i int) float64
		named bool
	}{
		"three cores for six hours each Monday": {load(3, 6, monday), true},
		"half a core for two hours each Monday": {load(0.5, 2, monday), true},
		"one Monday of two":                     {load(3, 6, func(d int) bool { return d == 7 }), false},
		"ten minutes each Monday": {func(i int) float64 {
			if i%(7*1440) < 10 {
				return 3
			}

			return 0.2
		}, false},
		"no peak":                                {same(0.2), false},
		"six hours each day":                     {load(3, 6, func(int) bool { return true }), false},
		"two weekdays, which the policy covers":  {load(3, 6, func(d int) bool { return d%7 < 2 }), false},
		"a tenth more on Mondays, within margin": {load(0.203, 6, monday), false},
	} {
		for _, policy := range []string{DefaultPolicy, LatencySensitivePolicy, BatchPolicy, CalibratedPolicy} {
			p := NewProfile()
			p.AddCPU(Usage{Pod: "a", Series: minutes(14*1440, c.value)})
			r := Recommend(Input{Container: "app", Profile: p, Now: start.Add(14 * day)}, mustPolicy(t, policy))
			checkRecommendation(t, r)

			text := detail(r.CPU, string(FlagWeeklyPeak))
			covered := float64(*r.Target.CPURequest) >= 1000*c.value(620)
			if named := text != ""; named != (c.named && !covered) {
				t.Errorf("%s, %s: request %s with the finding %q, want one: %t unless it is covered", name, policy, units.FormatCPU(*r.Target.CPURequest), text, c.named)
			}

			if text != "" && (!strings.Contains(text, "Monday") || !strings.Contains(text, "to cover it costs") || !strings.Contains(text, "not to cover it")) {
				t.Errorf("%s, %s: finding %q, want the weekday and the cost both ways", name, policy, text)
			}
		}
	}
}

// TestRecommend_WeeklyPeakOnTheDay checks that the peaks of the last Mondays are named before that of this Monday as well.
func TestRecommend_WeeklyPeakOnTheDay(t *testing.T) {
	p := NewProfile()
	p.AddCPU(Usage{Pod: "a", Series: minutes(14*1440+120, func(i int) float64 {
		if minute := i % 1440; i/1440%7 == 0 && minute >= 600 && minute < 960 {
			return 3
		}

		return 0.2
	})})

	for _, now := range []time.Time{start.Add(14 * day), start.Add(14*day + 2*time.Hour)} {
		r := Recommend(Input{Container: "app", Profile: p, Now: now}, mustPolicy(t, DefaultPolicy))
		if !hasFlag(r.CPU, FlagWeeklyPeak) {
			t.Errorf("at %v: flags %v, want %s", now, r.CPU.Flags, FlagWeeklyPeak)
		}
	}
}
