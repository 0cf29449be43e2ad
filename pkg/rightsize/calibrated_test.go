// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// calibratedInput returns usage at five-minute steps, and a decision after it.
func calibratedInput(days int, f func(i int) float64) Input {
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	s := series.Series{Start: start, Step: 5 * time.Minute, Values: make([]float64, days*288)}
	for i := range s.Values {
		s.Values[i] = f(i)
	}

	p := NewProfile()
	p.AddCPU(Usage{Pod: "web-1", Series: s, Reaction: calibrate.DefaultSettings().Reaction})
	return Input{Container: "web", Profile: p, Now: s.End()}
}

func calibratedCPU(t *testing.T, in Input, target units.Ratio) Recommendation {
	t.Helper()

	p, err := PolicyByName(CalibratedPolicy)
	if err != nil {
		t.Fatal(err)
	}

	p.CPU.Target = target
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}

	return Recommend(in, p)
}

// TestCalibratedMeetsItsTarget checks that bursts are covered if they last longer than the target allows, and are not otherwise.
func TestCalibratedMeetsItsTarget(t *testing.T) {
	in := calibratedInput(14, func(i int) float64 {
		if i%100 == 7 { // 1 % of the time
			return 2
		}

		return 1
	})

	strict := calibratedCPU(t, in, 0.005)
	lax := calibratedCPU(t, in, 0.02)
	if *strict.Target.CPURequest < 2000 || *lax.Target.CPURequest > 1100 {
		t.Errorf("requests %v (strict) and %v (lax), want 2000 or more and 1100 or less", *strict.Target.CPURequest, *lax.Target.CPURequest)
	}

	for _, r := range []Recommendation{strict, lax} {
		c := r.CPU.Calibration
		if c == nil || !c.Met() || hasFlag(r.CPU, FlagTargetMissed) || !strings.Contains(r.CPU.Message, "target") {
			t.Errorf("calibration %+v with the message %q, want the target met and named", c, r.CPU.Message)
		}
	}

	if c := lax.CPU.Calibration; math.Abs(float64(c.Achieved)-0.01) > 0.001 {
		t.Errorf("achieved %v, want 1 %%", c.Achieved)
	}
}

// jumping usage doubles for two hours every third day, at other times than before.
func jumping(i int) float64 {
	if d, step := i/288, i%288; d%3 == 1 && step > 20*(d%7) && step < 20*(d%7)+24 {
		return 2
	}

	return 1
}

// TestCalibratedWithReaction checks that the request of a workload whose pods are raised within the day is lower, meets the target when it is
// followed with the reaction, and that nothing changes without raises or where the order of samples is not known.
func TestCalibratedWithReaction(t *testing.T) {
	in := calibratedInput(14, jumping)
	without := calibratedCPU(t, in, 0.005)
	in.Reacts = true

	with := calibratedCPU(t, in, 0.005)
	if *with.Target.CPURequest > 1250 || *without.Target.CPURequest < 1900 {
		t.Errorf("requests %v with the reaction and %v without, want 1250 or less and 1900 or more", *with.Target.CPURequest, *without.Target.CPURequest)
	}

	c := with.CPU.Calibration
	if !c.Reaction || !c.Met() || without.CPU.Calibration.Reaction || !strings.Contains(with.CPU.Message, "the replay of 12 days, with raises within the day") {
		t.Errorf("calibration %+v with the message %q, want a met target in a replay of 12 days with raises", c, with.CPU.Message)
	}

	p, err := PolicyByName(CalibratedPolicy)
	if err != nil {
		t.Fatal(err)
	}

	now := CollectEvidence(in, p).CPU.Outcomes[0]
	in.Reacts = false
	if then := CollectEvidence(in, p); now.Violation > 0.005 || now.Request >= then.CPU.Outcomes[0].Request {
		t.Errorf("outcome %+v with the reaction, %+v without; want at most 0.005 above a smaller request", now, then.CPU.Outcomes[0])
	}

	plain := NewProfile()
	for _, d := range in.Profile.Days() {
		copied := *d
		copied.Reaction = nil
		plain.days = append(plain.days, &copied)
	}

	in.Profile = plain
	in.Reacts = true
	if r := calibratedCPU(t, in, 0.005); *r.Target.CPURequest != *without.Target.CPURequest {
		t.Errorf("%v without the order of samples, want %v", *r.Target.CPURequest, *without.Target.CPURequest)
	}
}

// TestCalibratedFollowsALevel checks that usage which fell to a tenth is sized by the newest days if pods are raised within the day, and by
// all days otherwise.
func TestCalibratedFollowsALevel(t *testing.T) {
	in := calibratedInput(14, func(i int) float64 {
		if i < 6*288 {
			return 10
		}

		return 1
	})

	without := calibratedCPU(t, in, 0.005)
	in.Reacts = true

	with := calibratedCPU(t, in, 0.005)
	if c := with.CPU.Calibration; c.NewestDays != 3 || *with.Target.CPURequest > 1200 || !strings.Contains(with.CPU.Message, "of the newest 3 days") {
		t.Errorf("with raises: request %v, calibration %+v, message %q; want 1200 or less by the newest 3 days", *with.Target.CPURequest, c, with.CPU.Message)
	}
	if c := without.CPU.Calibration; c.NewestDays != 0 || strings.Contains(without.CPU.Message, "newest") {
		t.Errorf("without raises: request %v, calibration %+v, message %q; want all days", *without.Target.CPURequest, c, without.CPU.Message)
	}
}

// TestReactionOfProfiles checks that the effect of the reaction is the same whether pods are added to one profile, merged, or stored and read;
// that a starting pod does not react, and that the effect is not known if that on any part is not.
func TestReactionOfProfiles(t *testing.T) {
	reaction := calibrate.DefaultSettings().Reaction
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	pod := func(name string, seed int) Usage {
		s := series.Series{Start: start, Step: time.Minute, Values: make([]float64, 2*1440)}
		for i := range s.Values {
			s.Values[i] = 1 + float64((i*seed+i*i/97)%89)/30
		}

		return Usage{Pod: name, Series: s, Reaction: reaction}
	}

	all := NewProfile()
	merged := NewProfile()
	for i, name := range []string{"a", "b", "c"} {
		u := pod(name, 7+i)
		all.AddCPU(u)
		single := NewProfile()
		single.AddCPU(u)
		u.Reaction = nil
		single.AddMemory(u)

		data, err := single.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}

		var read Profile
		if err := read.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}

		merged.Merge(&read)
	}

	for i, d := range all.Days() {
		for _, request := range []float64{0.5, 1, 1.7, 2.4, 3, 4} {
			above, added, ok := d.Reaction.At(request)
			got, gotAdded, gotOK := merged.Days()[i].Reaction.At(request)
			if !ok || !gotOK || got != above || math.Abs(gotAdded-added) > 1e-3 || request == 1.7 && (above == 0 || added == 0 || above >= d.CPU.CountAbove(request)) {
				t.Errorf("day %d, request %v: merged curve has %v and %v (%v), want %v and %v", i, request, got, gotAdded, gotOK, above, added)
			}
		}
	}

	unknown := pod("d", 3)
	unknown.Reaction = nil
	merged.AddCPU(unknown)
	other := NewProfile()
	other.AddCPU(unknown)
	all.Merge(other)

	if merged.Days()[0].Reaction != nil || all.Days()[1].Reaction != nil || other.Days()[0].Reaction != nil {
		t.Error("Reaction of a merged day is known, want nil: that of one pod is not known")
	}

	starting := Usage{Pod: "e", Started: start, Reaction: reaction, Series: series.Series{Start: start, Step: time.Minute, Values: []float64{9, 9, 9, 9, 9, 1, 1, 1}}}
	p := NewProfile()
	p.AddCPU(starting)

	if above, added, ok := p.Days()[0].Reaction.At(2); above != 0 || added != 0 || !ok || math.IsNaN(starting.Series.Values[0]) {
		t.Errorf("a starting pod: Reaction.At(2) = %v, %v, %v; want 0, 0, true and the samples unchanged", above, added, ok)
	}
}

// TestMissedTargetIsAFinding checks that a miss is reported with its size.
func TestMissedTargetIsAFinding(t *testing.T) {
	in := calibratedInput(10, func(i int) float64 { return math.Pow(4, float64(i/288)) / 1e3 })
	r := calibratedCPU(t, in, 0.005)
	if !hasFlag(r.CPU, FlagTargetMissed) || r.CPU.Confidence > 0.5 || r.Target.CPURequest == nil {
		t.Errorf("usage that only grows: CPU %+v, want a request with %s and low confidence", r.CPU, FlagTargetMissed)
	}
}

// TestNotCalibratedIsAFinding checks that a history too short for a replay is sized as by the default policy, and reported.
func TestNotCalibratedIsAFinding(t *testing.T) {
	in := calibratedInput(8, func(i int) float64 {
		if i/288 == 3 {
			return series.Gap()
		}

		return 1 + float64(i%12)/12
	})

	in.Now = in.Now.Add(-20 * time.Hour) // six finished days with usage, and four hours
	p, err := PolicyByName(CalibratedPolicy)
	if err != nil {
		t.Fatal(err)
	}

	p.MinHistory = 3 * day
	r := Recommend(in, p)

	q, err := PolicyByName(DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}

	q.MinHistory = 3 * day
	want := Recommend(in, q)
	if !hasFlag(r.CPU, FlagNotCalibrated) || r.CPU.Calibration != nil || *r.Target.CPURequest != *want.Target.CPURequest {
		t.Errorf("%+v, want %v", r.CPU, *want.Target.CPURequest)
	}
}

// TestCalibratedOfIdle checks that idle containers get the floor.
func TestCalibratedOfIdle(t *testing.T) {
	r := calibratedCPU(t, calibratedInput(14, func(int) float64 { return 0 }), 0.005)
	if !hasFlag(r.CPU, FlagIdle) || hasFlag(r.CPU, FlagNotCalibrated) || *r.Target.CPURequest != 10 {
		t.Errorf("idle: CPU %+v, want 10m with the flag %s alone", r.CPU, FlagIdle)
	}
}

func TestTargetOfPolicyFiles(t *testing.T) {
	for text, want := range map[string]units.Ratio{
		`{"name": "a", "cpu": {"method": "calibrated"}}`:                     0.005,
		`{"name": "a", "cpu": {"method": "calibrated", "target": 0.01}}`:     0.01,
		`{"name": "a", "base": "calibrated", "cpu": {"target": 0.0025}}`:     0.0025,
		`{"name": "a", "base": "calibrated", "cpu": {"method": "envelope"}}`: 0,
	} {
		if p, err := parsePolicy([]byte(text)); err != nil || p.CPU.Target != want {
			t.Errorf("parsePolicy(%s): target %v, error %v; want %v", text, p.CPU.Target, err, want)
		}
	}

	for _, text := range []string{
		`{"name": "a", "cpu": {"target": 0.01}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "target": 0.001}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "target": 0.6}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "window": "3d"}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "halfLife": "3d"}}`,
	} {
		if _, err := parsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), "cpu.") {
			t.Errorf("parsePolicy(%s): error %v, want one of a field of cpu", text, err)
		}
	}
}
