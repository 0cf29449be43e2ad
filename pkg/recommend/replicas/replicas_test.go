// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

var now = time.Date(2026, 3, 12, 10, 0, 0, 0, time.UTC)

// flat is a use that was the same for so long.
func flat(value float64, length time.Duration) series.Series {
	s := series.Series{Start: now.Add(-length), Step: 5 * time.Minute, Values: make([]float64, length/(5*time.Minute))}
	for i := range s.Values {
		s.Values[i] = value
	}

	return s
}

func defaults(t *testing.T) Settings {
	t.Helper()

	s, err := ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

const week = 7 * 24 * time.Hour

// fixture uses 2 cores and 1 GiB with 10 pods of one core and one GiB each.
func fixture() Input {
	return Input{
		Replicas: 10, Available: 10, CPU: flat(2, week), Memory: flat(1<<30, week), CPURequest: 1000, MemoryRequest: 1 << 30, Now: now,
	}
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		change             func(*Input, *Settings)
		replicas, cpu, mem int32
		action             recommend.Action
	}{
		"cpu decides":             {func(*Input, *Settings) {}, 4, 4, 2, recommend.Patch},
		"memory really counts":    {func(in *Input, _ *Settings) { in.Memory = flat(6<<30, week) }, 12, 4, 12, recommend.Patch},
		"as it is":                {func(in *Input, _ *Settings) { in.Replicas, in.Available = 4, 4 }, 4, 4, 2, recommend.NoAction},
		"never below the minimum": {func(_ *Input, s *Settings) { s.DefaultMin = 7 }, 7, 4, 2, recommend.Patch},
		"another target":          {func(_ *Input, s *Settings) { s.CPUTarget = 1 }, 2, 2, 2, recommend.Patch},
		"availability not known":  {func(in *Input, _ *Settings) { in.Available = -1 }, 4, 4, 2, recommend.Patch},
		"use of nothing is one": {func(in *Input, _ *Settings) {
			in.CPU = flat(0, week)
			in.Memory = flat(0, week)
		}, 1, 0, 0, recommend.Patch},
		"a use beyond all numbers": {func(in *Input, _ *Settings) { in.CPU = flat(1e300, week) }, math.MaxInt32, math.MaxInt32, 2, recommend.Patch},
	} {
		t.Run(name, func(t *testing.T) {
			in := fixture()
			s := defaults(t)
			c.change(&in, &s)

			p := Decide(in, s)
			if p.State != recommend.Ready || p.Replicas != c.replicas || p.ByCPU != c.cpu || p.ByMemory != c.mem || p.Action != c.action {
				t.Errorf("Decide = %+v, want %d replicas, %d by CPU, %d by memory, %s", p, c.replicas, c.cpu, c.mem, c.action)
			}
			if len(p.Evidence) != 2 || p.Description == "" {
				t.Errorf("Decide = %+v, want a description and 2 pieces of evidence", p)
			}
		})
	}
}

func TestDecide_NoNumber(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		state  recommend.State
		says   string
	}{
		"scaled to zero":    {func(in *Input) { in.Replicas = 0 }, recommend.Refused, "has 0 replicas"},
		"half of them down": {func(in *Input) { in.Available = 4 }, recommend.Refused, "4 of 10 pods are available"},
		"none available":    {func(in *Input) { in.Available = 0 }, recommend.Refused, "0 of 10"},
		"no request":        {func(in *Input) { in.Unrequested = "app" }, recommend.Refused, "Container app"},
		"no pod request":    {func(in *Input) { in.MemoryRequest = 0 }, recommend.Refused, "request no cpu or no memory"},
		"nothing seen": {func(in *Input) {
			in.CPU = series.Series{}
			in.Memory = series.Series{}
		}, recommend.NoData, "No cpu use"},
		"no memory seen":     {func(in *Input) { in.Memory = series.Series{} }, recommend.NoData, "No memory use"},
		"younger than a day": {func(in *Input) { in.CPU = flat(2, 20*time.Hour) }, recommend.Learning, "cpu use is known for 20 of the last 24 hours"},
		"holes":              {func(in *Input) { in.CPU = withHoles(in.CPU) }, recommend.Learning, "cpu use is known for 84 of the last 168 hours"},
		"old news":           {func(in *Input) { in.CPU.Start = in.CPU.Start.Add(-6 * time.Hour) }, recommend.NoData, "last cpu use"},
		"not a number is no": {func(in *Input) { in.CPU = flat(math.NaN(), week) }, recommend.NoData, "No cpu use"},
	} {
		t.Run(name, func(t *testing.T) {
			in := fixture()
			c.change(&in)

			p := Decide(in, defaults(t))
			if p.State != c.state || p.Replicas != 0 || p.Action != "" || !strings.Contains(p.Description, c.says) {
				t.Errorf("Decide = %+v, want %s without a number and a text with %q", p, c.state, c.says)
			}
		})
	}
}

// withHoles is a use of which every second hour is missing.
func withHoles(s series.Series) series.Series {
	for i := range s.Values {
		if i/12%2 == 0 {
			s.Values[i] = math.NaN()
		}
	}

	return s
}

// TestDecide_ShortHistory checks that one day is enough to recommend more pods but not fewer, and that the reason is
// reported.
func TestDecide_ShortHistory(t *testing.T) {
	const two = 48 * time.Hour
	for name, c := range map[string]struct {
		cpu, memory series.Series
		replicas    int32
		action      recommend.Action
		says        string
	}{
		"more are needed":   {flat(8, two), flat(1<<30, two), 16, recommend.Patch, "cpu use is known for 48 of the last 168 hours"},
		"fewer are not":     {flat(2, two), flat(1<<30, two), 10, recommend.NoAction, "It stays at 10 pods"},
		"one of them short": {flat(8, week), flat(1<<30, two), 16, recommend.Patch, "memory use is known for 48"},
		"just a day":        {flat(8, 24*time.Hour), flat(1<<30, 24*time.Hour), 16, recommend.Patch, "24 of the last 168"},
	} {
		t.Run(name, func(t *testing.T) {
			in := fixture()
			in.CPU, in.Memory = c.cpu, c.memory

			p := Decide(in, defaults(t))
			if p.State != recommend.Ready || !p.Incomplete || p.Replicas != c.replicas || p.Action != c.action {
				t.Errorf("Decide with a short history = %+v, want an incomplete plan with %d replicas, %s", p, c.replicas, c.action)
			}
			if !strings.Contains(p.Description, c.says) || !strings.Contains(p.Description, "No forecast stands in for the rest") {
				t.Errorf("description %q, want %q and that there is no forecast", p.Description, c.says)
			}
		})
	}

	in := fixture()
	s := defaults(t)
	in.CPU = flat(2, 30*time.Hour)

	in.Memory = flat(1<<30, 30*time.Hour)
	s.Window = 24 * time.Hour
	if p := Decide(in, s); p.State != recommend.Ready || p.Incomplete || p.Replicas != 4 {
		t.Errorf("Decide with a window of a day = %+v, want a complete plan with 4 replicas", p)
	}
}

// TestDecide_Monotone: more use never needs fewer pods, a larger request or target never more; the number is within bounds.
func TestDecide_Monotone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := defaults(t)
	for range 300 {
		in := fixture()
		in.CPU = flat(random.ExpFloat64()*20, week)
		in.Memory = flat(random.ExpFloat64()*40*(1<<30), week)

		in.CPURequest = units.MilliCPU(1 + random.IntN(8000))
		p := Decide(in, s)
		if p.Replicas < s.DefaultMin || p.Replicas < p.ByCPU || p.Replicas < p.ByMemory {
			t.Fatalf("Decide = %+v, want at least the minimum and the pods of each resource", p)
		}

		more := in
		more.CPU = flat(in.CPU.Values[0]*(1+random.Float64()), week)
		if q := Decide(more, s); q.Replicas < p.Replicas {
			t.Errorf("Decide = %+v, with more use %+v, want no fewer pods", p, q)
		}

		larger := in
		larger.CPURequest *= 2
		if q := Decide(larger, s); q.Replicas > p.Replicas {
			t.Errorf("Decide = %+v, with larger pods %+v, want no more pods", p, q)
		}
	}
}

func TestParseSettings(t *testing.T) {
	s, err := ParseSettings(map[string]string{"cpu-percentile": "0.9", "workload-min-replicas": "2", "history-length": "14d"})
	if err != nil || s.CPUPercentile != 0.9 || s.WorkloadMin != 2 || s.Window != 14*24*time.Hour || s.MemoryPercentile != 0.95 {
		t.Errorf("ParseSettings = %+v, %v, want the given values and the defaults of the others", s, err)
	}

	for key, value := range map[string]string{
		"cpu-percentile": "1.1", "cpu-target-utilization": "0", "mem-target-utilization": "NaN", "default-min-replicas": "0", "unknown": "1",
		"history-length": "1h", "pod-available-ratio": "two",
	} {
		if _, err := ParseSettings(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("ParseSettings(%s=%q): %v, want an error that names the key", key, value, err)
		}
	}
}

// FuzzDecide checks that no usage causes a panic or a number out of bounds.
func FuzzDecide(f *testing.F) {
	f.Add(2.0, 1e9, int64(1000), int64(1<<30), int32(3), int32(3))
	f.Add(math.Inf(1), math.NaN(), int64(-1), int64(0), int32(-5), int32(-1))
	f.Fuzz(func(t *testing.T, cpu, memory float64, cpuRequest, memoryRequest int64, replicas, available int32) {
		in := Input{
			Replicas: replicas, Available: available, CPU: flat(cpu, week), Memory: flat(memory, week),
			CPURequest: units.MilliCPU(cpuRequest), MemoryRequest: units.Bytes(memoryRequest), Now: now,
		}

		s, err := ParseSettings(nil)
		if err != nil {
			t.Fatal(err)
		}

		if p := Decide(in, s); p.State == recommend.Ready != (p.Replicas >= 1) {
			t.Errorf("Decide = %+v, want a number exactly if it is Ready", p)
		}
	})
}
