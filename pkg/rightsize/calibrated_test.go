// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// calibratedInput returns usage at five-minute steps, and a decision after it.
func calibratedInput(days int, f func(i int) float64) Input {
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	s := series.Series{Start: start, Step: 5 * time.Minute, Values: make([]float64, days*288)}
	for i := range s.Values {
		s.Values[i] = f(i)
	}
	p := NewProfile()
	p.AddCPU(Usage{Pod: "web-1", Series: s})
	return Input{Container: "web", Profile: p, Now: s.End()}
}

func calibratedCPU(t *testing.T, in Input, target series.Ratio) Recommendation {
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
	strict, lax := calibratedCPU(t, in, 0.005), calibratedCPU(t, in, 0.02)
	if *strict.Target.CPURequest < 2000 || *lax.Target.CPURequest > 1100 {
		t.Errorf("requests %v and %v", *strict.Target.CPURequest, *lax.Target.CPURequest)
	}
	for _, r := range []Recommendation{strict, lax} {
		c := r.CPU.Calibration
		if c == nil || !c.Met() || hasFlag(r.CPU, FlagTargetMissed) || !strings.Contains(r.CPU.Message, "target") {
			t.Errorf("%+v, %q", c, r.CPU.Message)
		}
	}
	if c := lax.CPU.Calibration; math.Abs(float64(c.Achieved)-0.01) > 0.001 {
		t.Errorf("achieved %v, want 1 %%", c.Achieved)
	}
}

// TestMissedTargetIsAFinding checks that a miss is reported with its size.
func TestMissedTargetIsAFinding(t *testing.T) {
	in := calibratedInput(10, func(i int) float64 { return math.Pow(4, float64(i/288)) / 1e3 })
	r := calibratedCPU(t, in, 0.005)
	if !hasFlag(r.CPU, FlagTargetMissed) || r.CPU.Confidence > 0.5 || r.Target.CPURequest == nil {
		t.Errorf("%+v", r.CPU)
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
		t.Errorf("%+v", r.CPU)
	}
}

func TestTargetOfPolicyFiles(t *testing.T) {
	for text, want := range map[string]series.Ratio{
		`{"name": "a", "cpu": {"method": "calibrated"}}`:                     0.005,
		`{"name": "a", "cpu": {"method": "calibrated", "target": 0.01}}`:     0.01,
		`{"name": "a", "base": "calibrated", "cpu": {"target": 0.0025}}`:     0.0025,
		`{"name": "a", "base": "calibrated", "cpu": {"method": "envelope"}}`: 0,
	} {
		if p, err := ParsePolicy([]byte(text)); err != nil || p.CPU.Target != want {
			t.Errorf("%s: %v, %v", text, p.CPU.Target, err)
		}
	}
	for _, text := range []string{
		`{"name": "a", "cpu": {"target": 0.01}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "target": 0.001}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "target": 0.6}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "window": "3d"}}`,
		`{"name": "a", "cpu": {"method": "calibrated", "halfLife": "3d"}}`,
	} {
		if _, err := ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), "cpu.") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
