// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// minutes returns a series of n minutes from start whose i-th value is f(i).
func minutes(n int, f func(i int) float64) series.Series {
	s := series.Series{Start: start, Step: time.Minute, Values: make([]float64, n)}
	for i := range s.Values {
		s.Values[i] = f(i)
	}

	return s
}

// minutesOf is s with every value multiplied.
func minutesOf(s series.Series, factor float64) series.Series {
	out := series.Series{Start: s.Start, Step: s.Step, Values: make([]float64, len(s.Values))}
	for i, v := range s.Values {
		out.Values[i] = factor * v
	}

	return out
}

// daily is a day of load around 1, between 0.5 and 1.5, with some noise.
func daily(rng *rand.Rand) func(int) float64 {
	return func(i int) float64 {
		return 1 - 0.4*math.Cos(2*math.Pi*float64(i)/1440) + 0.1*rng.Float64()
	}
}

func steadyInput(days int, scale float64) Input {
	rng := rand.New(rand.NewPCG(11, 12))
	load := daily(rng)
	p := NewProfile()
	p.AddCPU(Usage{Pod: "a", Series: minutes(days*1440, func(i int) float64 { return scale * load(i) })})
	p.AddMemory(Usage{Pod: "a", Series: minutes(days*1440, func(i int) float64 { return scale * 1e9 * load(i) })})

	return Input{Container: "app", Profile: p, Now: start.Add(time.Duration(days) * day)}
}

func mustPolicy(t testing.TB, name string) Policy {
	t.Helper()

	p, err := PolicyByName(name)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func hasStep(s Sizing, code StepCode) bool {
	for _, step := range s.Steps {
		if step.Code == code {
			return true
		}
	}

	return false
}

func hasFlag(s Sizing, code FlagCode) bool {
	for _, f := range s.Flags {
		if f.Code == code {
			return true
		}
	}

	return false
}

func TestRecommendSteadyLoad(t *testing.T) {
	for _, name := range PolicyNames() {
		policy := mustPolicy(t, name)
		if err := policy.Validate(); err != nil {
			t.Fatalf("%s: Validate() = %v, want no error", name, err)
		}

		r := Recommend(steadyInput(14, 1), policy)
		if !r.Ready() {
			t.Fatalf("%s: Recommend = %+v, want numbers for both resources", name, r)
		}

		if cpu := *r.Target.CPURequest; cpu < 1200 || cpu > 2000 {
			t.Errorf("%s: CPU %d, want about 1500 to 1800", name, cpu)
		}
		if m := *r.Target.MemoryRequest; m < 1.5e9 || m > 1.9e9 {
			t.Errorf("%s: memory %d, want about 1.7e9", name, m)
		}
		if r.CPU.Confidence != 1 || r.Memory.Confidence != 1 {
			t.Errorf("%s: confidence %v and %v, want 1", name, r.CPU.Confidence, r.Memory.Confidence)
		}
	}
}

func TestTooLittleHistory(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	r := Recommend(steadyInput(3, 1), policy)
	if r.CPU.Status != Learning || r.CPU.Message != "learning, 3 of 7 days" || r.Target != (Resources{}) {
		t.Errorf("3 days: CPU %+v with Target %s, want learning without numbers", r.CPU, jsonText(r.Target))
	}

	r = Recommend(Input{Profile: NewProfile(), Now: start}, policy)
	if r.CPU.Status != NoData || r.Memory.Status != NoData || r.Target != (Resources{}) {
		t.Errorf("an empty profile: %+v, want no data", r)
	}

	r = Recommend(Input{Now: start}, policy)
	if r.CPU.Status != NoData {
		t.Errorf("a nil profile: %+v, want no data", r)
	}
}

func TestGocranePolicy(t *testing.T) {
	p, err := GocranePolicy(nil)
	if err != nil {
		t.Fatal(err)
	}

	if p.CPU.Percentile != 0.99 || p.CPU.Margin != 0.15 || p.CPU.Window != 7*day || p.Memory.OOM.Ratio != 1.2 || len(p.Specifications) != 0 {
		t.Errorf("GocranePolicy(nil) = %+v, want the defaults of gocrane", p)
	}

	p, err = GocranePolicy(map[string]string{
		"cpu-request-percentile": "0.5", "mem-request-margin-fraction": "0", "specification": "true",
		"specification-config": "0.25c0.25g, 1c2g", "cpu-model-history-length": "3d", "oom-protection": "false",
	})
	if err != nil || p.CPU.Percentile != 0.5 || p.Memory.Margin != 0 || len(p.Specifications) != 2 || p.CPU.Window != 3*day || p.Memory.OOM.Enabled {
		t.Errorf("GocranePolicy(settings) = %+v, %v; want the settings in it", p, err)
	}

	decaying, err := GocranePolicy(map[string]string{"cpu-half-life": "24h"})
	if err != nil || decaying.CPU.HalfLife != day {
		t.Errorf("GocranePolicy(cpu-half-life 24h) = %+v, %v; want a half-life of a day", decaying, err)
	}

	// Use that has doubled weighs more where the past decays.
	in := Input{Profile: NewProfile(), Now: start.Add(7 * day)}
	in.Profile.AddCPU(Usage{Series: minutes(7*1440, func(i int) float64 { return 1 + float64(i/(6*1440)) })})

	p.CPU.Percentile, decaying.CPU.Percentile = 0.8, 0.8
	if plain, weighed := p.CPU.Need(in.Profile.Days(), in.Now), decaying.CPU.Need(in.Profile.Days(), in.Now); plain > 1.2 || weighed < 2 {
		t.Errorf("Need = %v without decay and %v with it, want at most 1.2 and at least 2", plain, weighed)
	}

	_, err = GocranePolicy(map[string]string{"cpu-request-percentil": "0.9", "cpu-target-utilization": "NaN", "specification-config": "1c"})
	for _, want := range []string{"did you mean cpu-request-percentile?", "cpu-target-utilization", `"NaN"`, "0.001 to 1", `entry "1c"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}
