// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpa

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/replicas"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

var now = time.Date(2026, 3, 12, 10, 0, 0, 0, time.UTC)

const week = 7 * 24 * time.Hour

// wave is a use with a daily cycle between low and high.
func wave(low, high float64) series.Series {
	s := series.Series{Start: now.Add(-week), Step: 5 * time.Minute, Values: make([]float64, week/(5*time.Minute))}
	for i := range s.Values {
		day := float64(s.Time(i).Unix()%86400) / 86400
		s.Values[i] = low + (high-low)*(1-math.Cos(2*math.Pi*day))/2
	}

	return s
}

func web() Input {
	return Input{
		Replicas: replicas.Input{
			Replicas: 10, Available: 10, CPU: wave(1, 4), Memory: wave(1<<30, 1<<30), CPURequest: 1000, MemoryRequest: 1 << 30, Now: now,
		},
		PodCPU: 0.4,
	}
}

func defaults(t *testing.T) Settings {
	t.Helper()

	s, err := ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// TestDecide: without any configuration, which gocrane's recommender does not work without.
func TestDecide(t *testing.T) {
	p := Decide(web(), defaults(t))
	// P95 of the wave is close to 4 cores: 8 pods at half a core; 0.4 x 1.15 of a core are 46 %; 3 x 4 cores at 0.46 each.
	if p.State != recommend.Ready || p.Action != recommend.Create || p.Bounds.Min != 8 || p.Bounds.Target != 46 || p.Bounds.Max != 26 || p.Forecast {
		t.Errorf("Decide = %+v, want Create with 8 to 26 pods at 46 %%", p)
	}
	if !strings.Contains(p.Description, "8 to 26 pods") || !strings.Contains(p.Description, "46 % of the requested 1") || len(p.Evidence) != 5 {
		t.Errorf("description %q, evidence %v, want the bounds, the request and 5 pieces of evidence", p.Description, p.Evidence)
	}

	in := web()
	in.Existing = &Bounds{Min: 8, Max: 26, Target: 46}
	if p := Decide(in, defaults(t)); p.Action != recommend.NoAction {
		t.Errorf("Decide with the same autoscaler = %+v, want no action", p)
	}

	in.Existing.Target = 50
	if p := Decide(in, defaults(t)); p.Action != recommend.Patch {
		t.Errorf("Decide with another target = %+v, want Patch", p)
	}

	in.RequestChanges = true
	if p := Decide(in, defaults(t)); !strings.Contains(p.Description, "changes together with it") {
		t.Errorf("description %q, want it to say that the request changes too", p.Description)
	}
}

func TestDecide_TargetWithinBounds(t *testing.T) {
	for use, want := range map[float64]int32{0.01: 30, 0.4: 46, 5: 75} {
		in := web()
		in.PodCPU = use
		if p := Decide(in, defaults(t)); p.Bounds.Target != want || p.Bounds.Max < p.Bounds.Min {
			t.Errorf("Decide with %g cores of a pod = %+v, want the target %d", use, p.Bounds, want)
		}
	}
}

func TestDecide_NoAutoscaler(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		change func(*Input, *Settings)
		state  recommend.State
		reason string
	}{
		"little use":  {func(in *Input, _ *Settings) { in.Replicas.CPU = wave(0.1, 0.5) }, recommend.Ready, ReasonLowUsage},
		"flat use":    {func(in *Input, _ *Settings) { in.Replicas.CPU = wave(3, 4) }, recommend.Ready, ReasonFlat},
		"scaled down": {func(in *Input, _ *Settings) { in.Replicas.Replicas = 0 }, recommend.Refused, replicas.ReasonScaledDown},
		"no history":  {func(in *Input, _ *Settings) { in.Replicas.CPU = series.Series{} }, recommend.NoData, ""},
		"half a history": {func(in *Input, _ *Settings) {
			in.Replicas.CPU = in.Replicas.CPU.Between(now.Add(-week/2), now)
		}, recommend.Learning, ""},
		"no use of one": {func(in *Input, _ *Settings) { in.PodCPU = math.NaN() }, recommend.NoData, ""},
		"noise": {func(in *Input, s *Settings) {
			s.Predictable = true
			s.Fluctuation = 1

			for i := range in.Replicas.CPU.Values {
				in.Replicas.CPU.Values[i] = 1 + 3*random.Float64()
			}
		}, recommend.Ready, ReasonNotPredictable},
	} {
		t.Run(name, func(t *testing.T) {
			in := web()
			s := defaults(t)
			c.change(&in, &s)

			p := Decide(in, s)
			if p.State != c.state || p.Reason != c.reason || p.Bounds != (Bounds{}) || p.Description == "" || p.Action == recommend.Create {
				t.Errorf("Decide = %+v, want %s, reason %q and no bounds", p, c.state, c.reason)
			}
		})
	}

	s := defaults(t)
	s.Predictable = true
	if p := Decide(web(), s); p.Action != recommend.Create || !p.Forecast {
		t.Errorf("Decide with a predictable use = %+v, want Create with a forecast", p)
	}
}

func TestParseSettings(t *testing.T) {
	s, err := ParseSettings(map[string]string{"fluctuation-threshold": "2", "cpu-percentile": "0.9", "predictable": "true"})
	if err != nil || s.Fluctuation != 2 || s.Replicas.CPUPercentile != 0.9 || !s.Predictable || s.MaxFactor != 3 || !s.KeepMetrics {
		t.Errorf("ParseSettings = %+v, %v, want the given values and the defaults of the others", s, err)
	}

	for key, value := range map[string]string{
		"fluctuation-threshold": "-1", "max-replicas-factor": "x", "min-cpu-target-utilization": "80", "predictable": "often", "unknown": "",
	} {
		if _, err := ParseSettings(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("ParseSettings(%s=%q): %v, want an error that names the key", key, value, err)
		}
	}
}

// FuzzDecide checks that bounds are in order for any usage.
func FuzzDecide(f *testing.F) {
	f.Add(1.0, 4.0, 0.4, int64(1000))
	f.Add(0.0, math.Inf(1), math.Inf(1), int64(1))
	f.Fuzz(func(t *testing.T, low, high, pod float64, request int64) {
		in := web()
		in.Replicas.CPU = wave(low, high)
		in.PodCPU = pod
		in.Replicas.CPURequest = units.MilliCPU(request)

		p := Decide(in, defaults(t))
		if b := p.Bounds; b != (Bounds{}) && (b.Min < 1 || b.Max < b.Min || b.Target < 30 || b.Target > 75) {
			t.Errorf("Decide = %+v, want bounds in order and a target of 30 to 75 %%", p)
		}
	})
}
