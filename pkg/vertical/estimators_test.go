// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// constantProfile returns the profile of days of constant usage that end at start.
func constantProfile(days int, cores, bytes float64) *rightsize.Profile {
	p := rightsize.NewProfile()
	s := series.Series{Start: start.Add(-time.Duration(days) * 24 * time.Hour), Step: time.Minute, Values: make([]float64, days*24*60)}
	fill := func(v float64) rightsize.Usage {
		for i := range s.Values {
			s.Values[i] = v
		}

		return rightsize.Usage{Pod: "web-1", Series: s}
	}

	p.AddCPU(fill(cores))
	p.AddMemory(fill(bytes))
	return p
}

func estimates(t *testing.T, config map[string]string, profile *rightsize.Profile) map[units.Resource]Estimate {
	t.Helper()

	p, err := ParsePercentileEstimator(config)
	if err != nil {
		t.Fatal(err)
	}

	in := resource.Input{
		Now: start, Policy: p.Policy(rightsize.Subject{}), MaxCPU: 100,
		Containers: []resource.Container{{Name: "app", Profile: profile, OOMs: []rightsize.OOM{{At: start.Add(-time.Hour), Memory: 8 << 30}}, HPA: &rightsize.HPA{CPUUtilization: 0.5}}},
	}

	return p.Estimate(in, 3)["app"]
}

// TestPercentileEstimator checks the meaning of gocrane's settings, that kills and autoscalers have no effect, and that a shorter history has
// wider bounds.
func TestPercentileEstimator(t *testing.T) {
	gocrane := map[string]string{"cpu-request-percentile": "0.9", "cpu-request-margin-fraction": "0.5", "cpu-model-init-mode": "history"}
	long := estimates(t, gocrane, constantProfile(7, 0.2, 100<<20))
	cpu := long[units.CPU]
	memory := long[units.Memory]

	if cpu.Value < 297 || cpu.Value > 310 || cpu.Priority != 3 || cpu.Estimator != TypePercentile || cpu.LowerBoundOnly {
		t.Errorf("CPU estimate %+v, want 297 to 310 of the percentile estimator", cpu)
	}
	if mib := memory.Value / (1 << 20); mib < 114 || mib > 119 {
		t.Errorf("memory estimate %v MiB, want 114 to 119: the kill is for the OOM estimator", mib)
	}
	if !(cpu.Lower > 0 && cpu.Lower <= cpu.Value && cpu.Value <= cpu.Upper) {
		t.Errorf("bounds %v, %v around %v, want them positive and in order", cpu.Lower, cpu.Upper, cpu.Value)
	}

	short := estimates(t, gocrane, constantProfile(1, 0.2, 100<<20))[units.CPU]
	if short.Upper < cpu.Upper {
		t.Errorf("upper bound %v of one day, want at least the %v of a week", short.Upper, cpu.Upper)
	}
	if e := estimates(t, nil, constantProfile(2, 0.2, 100<<20))[units.CPU]; e.Pending == "" || !strings.Contains(e.Pending, "learning") || e.Value != 0 {
		t.Errorf("estimate of two days by the default policy = %+v, want it pending while learning", e)
	}
	if e := estimates(t, nil, nil)[units.CPU]; e.Pending == "" || e.Value != 0 {
		t.Errorf("estimate without a history = %+v, want it pending", e)
	}

	if e := estimates(t, map[string]string{"policy": "batch"}, constantProfile(9, 0.2, 100<<20))[units.CPU]; e.Value <= 0 {
		t.Errorf("estimate by the policy batch = %+v, want a value", e)
	}
}

func TestParseEstimators_Invalid(t *testing.T) {
	for name, config := range map[string]map[string]string{
		"unknown key":     {"cpu-percentile": "0.9"},
		"no number":       {"cpu-request-percentile": "much"},
		"above one":       {"cpu-request-percentile": "99"},
		"unknown policy":  {"policy": "mine"},
		"policy and more": {"policy": "batch", "cpu-request-percentile": "0.9"},
	} {
		if _, err := ParsePercentileEstimator(config); err == nil {
			t.Errorf("ParsePercentileEstimator with %s succeeds, want an error", name)
		}
	}

	for name, config := range map[string]map[string]string{
		"unknown key": {"ratio": "2"}, "below one": {"oom-bump-ratio": "0.5"}, "no number": {"workload.web": "NaN"}, "no duration": {"oom-history-length": "-1h"},
	} {
		if _, err := ParseOOMEstimator(config); err == nil {
			t.Errorf("ParseOOMEstimator with %s succeeds, want an error", name)
		}
	}
}

// TestOOMEstimator_Settings checks gocrane's settings: a kill asks for the ratio or 100 MiB more, and the margin of the policy.
func TestOOMEstimator_Settings(t *testing.T) {
	o, err := ParseOOMEstimator(map[string]string{"oom-bump-ratio": "2", "oom-history-length": "48h", "workload.web": "3"})
	if err != nil {
		t.Fatal(err)
	}

	const gib = 1 << 30
	ago := func(d time.Duration, memory units.Bytes) rightsize.OOM {
		return rightsize.OOM{At: start.Add(-d), Memory: memory}
	}
	for name, c := range map[string]struct {
		workload string
		kills    []rightsize.OOM
		want     float64
	}{
		"none":                     {"db", nil, 0},
		"by the ratio":             {"db", []rightsize.OOM{ago(time.Hour, gib)}, 2 * gib},
		"of the workload":          {"web", []rightsize.OOM{ago(time.Hour, gib)}, 3 * gib},
		"too long ago":             {"db", []rightsize.OOM{ago(49*time.Hour, gib)}, 0},
		"in the future":            {"db", []rightsize.OOM{ago(-time.Hour, gib)}, 0},
		"by a clock that is ahead": {"db", []rightsize.OOM{ago(-30*time.Second, gib)}, 2 * gib},
		"unknown memory":           {"db", []rightsize.OOM{ago(time.Hour, 0)}, 0},
		"of a node":                {"db", []rightsize.OOM{{At: start.Add(-time.Hour), Memory: gib, NoLimit: true}}, 0},
		"at three limits":          {"db", []rightsize.OOM{ago(time.Hour, gib), ago(2*time.Hour, 3*gib), ago(3*time.Hour, 2*gib)}, 3 * gib},
	} {
		in := killInput(t, nil, nil, c.kills...)
		got, ok := o.Estimate(c.workload, in, 0)["app"]
		low, high := c.want, 1.08*c.want
		if ok != (c.want > 0) || got.Value < low || got.Value > high || ok && !got.LowerBoundOnly {
			t.Errorf("%s: Estimate(%s) = %+v, want %v to %v", name, c.workload, got, low, high)
		}
	}
}

// killInput returns the input of estimates for a container with a request of 700 MiB.
func killInput(t *testing.T, settings map[string]string, profile *rightsize.Profile, kills ...rightsize.OOM) resource.Input {
	t.Helper()

	p, err := ParsePercentileEstimator(settings)
	if err != nil {
		t.Fatal(err)
	}

	request := units.Bytes(700 << 20)
	return resource.Input{
		Now:    start,
		Policy: p.Policy(rightsize.Subject{}),
		Containers: []resource.Container{{
			Name:    "app",
			Profile: profile,
			Current: rightsize.Resources{MemoryRequest: &request, MemoryLimit: &request},
			OOMs:    kills,
		}},
	}
}

// TestEstimates_AsTheRule checks that both estimators together have the memory that a rule with the same policy recommends after kills.
func TestEstimates_AsTheRule(t *testing.T) {
	o, err := ParseOOMEstimator(nil)
	if err != nil {
		t.Fatal(err)
	}

	kill := func(age time.Duration, memory units.Bytes) rightsize.OOM {
		return rightsize.OOM{At: start.Add(-age), Memory: memory}
	}
	days := 24 * time.Hour
	settings := map[string]map[string]string{
		"gocrane's": {"mem-request-percentile": "0.9", "mem-target-utilization": "0.8", "mem-model-history-length": "168h"},
	}
	for _, name := range rightsize.PolicyNames() {
		settings[name] = map[string]string{"policy": name}
	}

	for name, config := range settings {
		p, err := ParsePercentileEstimator(config)
		if err != nil {
			t.Fatal(err)
		}

		for killed, kills := range map[string][]rightsize.OOM{
			"none":                    nil,
			"an hour ago":             {kill(time.Hour, 700<<20)},
			"eight days ago":          {kill(8*days, 700<<20)},
			"below the use":           {kill(time.Hour, 100<<20)},
			"far above the use":       {kill(time.Hour, 3<<30)},
			"at three limits":         {kill(3*days, 512<<20), kill(2*days, 1<<30), kill(time.Hour, 3<<30)},
			"at an unknown limit":     {{At: start.Add(-time.Hour), Memory: 300 << 20, LimitUnknown: true}},
			"at an unknown use":       {{At: start.Add(-time.Hour), LimitUnknown: true}},
			"of a node":               {{At: start.Add(-time.Hour), NoLimit: true}},
			"of a node, and a limit":  {{At: start.Add(-time.Hour), NoLimit: true}, kill(2*days, 700<<20)},
			"longer ago than history": {kill(40*days, 700<<20)},
		} {
			in := killInput(t, config, constantProfile(14, 0.2, 320<<20), kills...)
			want := float64(*resource.Decide(in).Containers[0].Target.MemoryRequest)
			got := p.Estimate(in, 0)["app"][units.Memory].Value
			if e, ok := o.Estimate("web", in, 0)["app"]; ok {
				got = max(got, e.Value)
			}

			if got != want {
				t.Errorf("%s, killed %s: the estimators have %.0f, a rule %.0f; want the same", name, killed, got, want)
			}
		}
	}
}

// TestOOMEstimator_Learning checks that kills count before there is enough usage, without a number below what killed.
func TestOOMEstimator_Learning(t *testing.T) {
	o, err := ParseOOMEstimator(nil)
	if err != nil {
		t.Fatal(err)
	}

	for name, profile := range map[string]*rightsize.Profile{"no use": nil, "one day": constantProfile(1, 0.2, 300<<20)} {
		for killed, kill := range map[string]rightsize.OOM{
			"at its limit":         {At: start.Add(-time.Hour), Memory: 700 << 20},
			"a week ago":           {At: start.Add(-7 * 24 * time.Hour), Memory: 700 << 20},
			"at an unknown limit":  {At: start.Add(-time.Hour), LimitUnknown: true},
			"below an unknown one": {At: start.Add(-time.Hour), Memory: 200 << 20, LimitUnknown: true},
		} {
			got, ok := o.Estimate("web", killInput(t, nil, profile, kill), 0)["app"]
			if !ok || got.Value < 700<<20 || got.Value > 1.5*(700<<20) || !strings.Contains(got.Reason, "it was killed") {
				t.Errorf("%s, killed %s: Estimate = %+v, want 700Mi to 1050Mi with the kill as reason", name, killed, got)
			}
		}
	}
}

// FuzzSettings checks that arbitrary settings are an error or usable.
func FuzzSettings(f *testing.F) {
	f.Add("cpu-request-percentile", "0.9")
	f.Add("oom-bump-ratio", "1e300")
	f.Add("workload.", "2")

	f.Fuzz(func(t *testing.T, key, value string) {
		if p, err := ParsePercentileEstimator(map[string]string{key: value}); err == nil {
			if err := p.Policy(rightsize.Subject{}).Validate(); err != nil {
				t.Errorf("policy of %q=%q: %v, want a valid one", key, value, err)
			}
		}

		if o, err := ParseOOMEstimator(map[string]string{key: value}); err == nil {
			e := o.Estimate("web", killInput(t, nil, nil, rightsize.OOM{At: start, Memory: 1 << 40}), 0)["app"]
			if !isValid(units.Memory, e.Value) {
				t.Errorf("estimate with %q=%q = %+v, want a valid value", key, value, e)
			}
		}
	})
}
