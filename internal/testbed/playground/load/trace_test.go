// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// ramp returns a series whose values are their indexes.
func ramp(start time.Time, n int, step time.Duration) series.Series {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i)
	}

	return series.Series{Start: start, Step: step, Values: v}
}

func TestTraceShiftKeepsWeekdayAndTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		start := time.Unix(rng.Int64N(2_000_000_000), 0).UTC()
		n := 1 + rng.IntN(20000)
		s := ramp(start, n, time.Minute)

		at := time.Unix(rng.Int64N(2_500_000_000), 0).UTC()
		tr, err := NewTrace(s, units.CPU, float64(at.Unix()))
		if err != nil {
			t.Fatal(err)
		}

		last := time.Unix(int64(tr.start+tr.span()-tr.step), 0).UTC()
		if ahead := last.Sub(at); ahead < 0 || ahead >= 7*24*time.Hour {
			t.Fatalf("last sample of the shifted trace is %s after now, want 0 to 7 days", ahead)
		}

		before := s.Time(n - 1)
		if last.Weekday() != before.Weekday() || last.Format(time.TimeOnly) != before.Format(time.TimeOnly) {
			t.Fatalf("last sample of %s moved to %s, want the same weekday and time", before.Format("Mon 15:04:05"), last.Format("Mon 15:04:05"))
		}
	}
}

func TestTraceRepeatsWholeWeeks(t *testing.T) {
	const weekMin = 7 * 24 * 60
	start := time.Date(2021, 8, 11, 0, 0, 0, 0, time.UTC)

	n := 8*24*60 + 17
	tr, err := NewTrace(ramp(start, n, time.Minute), units.CPU, float64(now.Unix()))
	if err != nil {
		t.Fatal(err)
	}

	for i := -3 * weekMin; i < n+3*weekMin; i += 13 {
		want := i
		for want < 0 {
			want += weekMin
		}

		for want >= n {
			want -= weekMin
		}

		if got := tr.at(tr.start + float64(i)*60 + 59); got != float64(want) {
			t.Fatalf("at(minute %d) = %v, want %d", i, got, want)
		}
	}
}

func TestShortTraces(t *testing.T) {
	for _, n := range []int{1, 5, 60, 24*60 + 5, 3 * 24 * 60} {
		tr, err := NewTrace(ramp(now.Add(-time.Hour), n, time.Minute), units.CPU, float64(now.Unix()))
		if err != nil {
			t.Fatal(err)
		}

		for i := range 5000 {
			s := float64(now.Unix()) + float64(i-2500)*1000
			v := tr.at(s)
			if v < 0 || v >= float64(n) {
				t.Fatalf("at of a trace of %d samples = %v, want one of its values", n, v)
			}

			if distance := math.Mod(s-tr.start-v*60+20000*patternDay, patternDay); n >= 24*60 && distance >= 60 {
				t.Fatalf("at(%v) of a trace of %d samples: a value %v s apart, want one of the same time of day", s, n, distance)
			}
		}
	}
}

func TestTraceRefusals(t *testing.T) {
	for name, s := range map[string]series.Series{
		"empty":    {},
		"negative": {Start: now, Step: time.Minute, Values: []float64{1, -1}},
		"infinite": {Start: now, Step: time.Minute, Values: []float64{math.Inf(1)}},
	} {
		if _, err := FromTraces([]NamedSeries{{"broken", s}}, units.CPU, 1, now); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("FromTraces of a series that is %s = %v, want an error that names the trace", name, err)
		}
	}

	if _, err := FromTraces(nil, "disk", 1, now); err == nil {
		t.Error("FromTraces for resource disk: no error, want one")
	}
}

func TestSharedTraces(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "traces")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the traces are not beside the repository: %v", err)
	}

	files, skipped, err := csv.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	named := make([]NamedSeries, 0, len(files))
	for _, f := range files {
		named = append(named, NamedSeries{Name: f.Name, Series: f.Series})
	}

	workloads, err := FromTraces(named, units.CPU, 1, now)
	if err != nil {
		t.Fatal(err)
	}

	if len(workloads) != 8 || len(skipped) == 0 {
		t.Errorf("traces of the directory: %d workloads and %d skipped files, want 8 and some", len(workloads), len(skipped))
	}

	source := NewSource(workloads, 1)
	past := Past{Start: now.Add(-14 * 24 * time.Hour), End: now}
	for i, w := range workloads {
		if want := fmt.Sprintf("workload-%d", i); w.Name != want {
			t.Errorf("name of workload %d = %s, want %s", i, w.Name, want)
		}

		c := &w.Containers[0]
		for at := past.Start; at.Before(now.Add(14 * 24 * time.Hour)); at = at.Add(37 * time.Minute) {
			u := source.At(c, "p", past.Start, at)
			if !u.Known || u.CPU > c.Profile.Trace.Peak() || u.CPU > cores(c.Request) {
				t.Fatalf("At(%s) of %s = %+v, want at most %v cores and the request", at, w.Name, u, c.Profile.Trace.Peak())
			}
		}
	}

	if d := Sum(workloads); d.PodCPU < 536 {
		t.Errorf("Sum: the largest pod needs %v cores, want at least 536", d.PodCPU)
	}
}

func TestFromTraces(t *testing.T) {
	gap := ramp(now.Add(-14*24*time.Hour), 30000, time.Minute)
	gap.Values[0] = series.Gap()

	all := []NamedSeries{{"workload-0", gap}, {"Ärger & Co", gap}, {"7up", gap}, {"workload-0", gap}}
	for _, r := range []units.Resource{units.CPU, units.Memory} {
		workloads, err := FromTraces(all, r, 1, now)
		if err != nil {
			t.Fatal(err)
		}

		names := []string{"workload-0", "rger---co", "trace-7up", "workload-0-2"}
		for i, w := range workloads {
			if w.Name != names[i] || w.Namespace != TraceNamespace {
				t.Errorf("FromTraces: workload %d is %s/%s, want %s/%s", i, w.Namespace, w.Name, TraceNamespace, names[i])
			}
		}

		w := workloads[0]
		s := NewSource(workloads, 1)
		tr := w.Containers[0].Profile.Trace
		if u := s.At(&w.Containers[0], "p", now, time.Unix(int64(tr.start), 0)); u.Known {
			t.Errorf("At in a gap = %+v, want an unknown use", u)
		}

		at := time.Unix(int64(tr.start)+300, 0)
		u := s.At(&w.Containers[0], "any pod", now, at)
		if got := map[units.Resource]float64{units.CPU: u.CPU, units.Memory: u.Memory}[r]; got != 5 {
			t.Errorf("%s at the fifth minute = %v, want 5 for each pod", r, got)
		}

		d := Sum(workloads)
		if got := map[units.Resource]float64{units.CPU: d.PodCPU, units.Memory: d.PodMemory}[r]; got < 29999 {
			t.Errorf("Sum: %s of the largest pod = %v, want at least 29999", r, got)
		}
	}
}
