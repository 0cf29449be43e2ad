// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

var midnight = time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)

func collect(t *testing.T, s *Source, req metrics.UsageRequest) []metrics.Chunk {
	t.Helper()

	var out []metrics.Chunk
	for c, err := range s.Usage(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}

		saved := c
		saved.Series.Values = slices.Clone(c.Series.Values)
		out = append(out, saved)

		for i := range c.Series.Values {
			c.Series.Values[i] = -1 // The caller may change the buffer until the next chunk.
		}
	}

	return out
}

func rising(start time.Time, step time.Duration, n int) series.Series {
	s := series.Series{Start: start, Step: step}
	for i := range n {
		s.Values = append(s.Values, float64(i))
	}

	return s
}

func TestUsageCutsAtMidnight(t *testing.T) {
	file := File{Name: "a", Series: rising(midnight.Add(-90*time.Second), time.Minute, 4)}
	file.Series.Values[3] = gap

	s := NewSource([]File{file}, metrics.CPU)
	for range 2 { // Changes of a buffer do not affect the next read.
		got := collect(t, s, metrics.UsageRequest{Resource: metrics.CPU})
		want := []series.Series{
			{Start: midnight.Add(-90 * time.Second), Step: time.Minute, Values: []float64{0, 1}},
			{Start: midnight.Add(30 * time.Second), Step: time.Minute, Values: []float64{2}},
		}
		if len(got) != 2 || !cmp.Equal(got[0].Series, want[0]) || !cmp.Equal(got[1].Series, want[1]) {
			t.Errorf("Usage returned %v, want the series %v", got, want)
		}

		if k := got[0].Key; k.Workload.String() != "Series/a" || k.Pod != "a" || k.Container != "a" {
			t.Errorf("Usage: key %+v, want Series/a with pod and container a", k)
		}
	}
}

func TestUsageBoundsAndSteps(t *testing.T) {
	s := NewSource([]File{{Name: "a", Series: rising(midnight, time.Minute, 10)}}, metrics.Memory)
	at := func(m float64) time.Time { return midnight.Add(time.Duration(m * float64(time.Minute))) }
	for _, c := range []struct {
		name string
		req  metrics.UsageRequest
		want []float64
	}{
		{"all", metrics.UsageRequest{}, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"start is inclusive, end is not", metrics.UsageRequest{Start: at(2), End: at(5)}, []float64{2, 3, 4}},
		{"between two values", metrics.UsageRequest{Start: at(1.5), End: at(3.5)}, []float64{2, 3}},
		{"around", metrics.UsageRequest{Start: at(-100), End: at(100)}, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"before", metrics.UsageRequest{Start: at(-100), End: at(0)}, nil},
		{"after", metrics.UsageRequest{Start: at(10), End: at(100)}, nil},
		{"joined", metrics.UsageRequest{Step: 5 * time.Minute}, []float64{4, 9}},
		{"finer than there is", metrics.UsageRequest{Step: time.Second}, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"another namespace", metrics.UsageRequest{Namespaces: []string{"x"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.Resource = metrics.Memory
			var got []float64
			for _, chunk := range collect(t, s, c.req) {
				got = append(got, chunk.Series.Values...)
			}

			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Usage(%+v): values differ (-want +got):\n%s", c.req, diff)
			}
		})
	}

	if got := collect(t, s, metrics.UsageRequest{Resource: metrics.CPU}); len(got) != 0 {
		t.Errorf("Usage returned %d chunks of CPU, want none: the files do not measure it", len(got))
	}

	for _, err := range s.Usage(t.Context(), metrics.UsageRequest{Start: at(5), End: at(5)}) {
		if err == nil {
			t.Error("Usage of an empty window: no error, want one")
		}

		return
	}

	t.Error("Usage of an empty window returned nothing, want an error")
}

func TestUsageEnds(t *testing.T) {
	s := NewSource([]File{{Name: "a", Series: rising(midnight, time.Hour, 100)}}, metrics.CPU)
	chunks := 0
	for _, err := range s.Usage(t.Context(), metrics.UsageRequest{Resource: metrics.CPU}) {
		chunks++

		if err != nil {
			t.Fatal(err)
		}

		break // The iterator panics if it continues after this.
	}

	if chunks != 1 {
		t.Errorf("Usage yielded %d chunks before the break, want 1", chunks)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	var failure error
	for _, failure = range s.Usage(ctx, metrics.UsageRequest{Resource: metrics.CPU}) {
	}

	if !errors.Is(failure, context.Canceled) {
		t.Errorf("Usage with a canceled context: error %v, want context.Canceled", failure)
	}
}

func TestSpan(t *testing.T) {
	if _, _, ok := NewSource([]File{{}}, metrics.CPU).Span(); ok {
		t.Error("Span without samples: ok, want none")
	}

	s := NewSource([]File{
		{Series: rising(midnight, time.Hour, 2)}, {}, {Series: rising(midnight.Add(-time.Hour), time.Minute, 2)},
	}, metrics.CPU)

	start, end, ok := s.Span()
	if !ok || !start.Equal(midnight.Add(-time.Hour)) || !end.Equal(midnight.Add(2*time.Hour)) {
		t.Errorf("Span() = %v to %v, %v, want %v to %v", start, end, ok, midnight.Add(-time.Hour), midnight.Add(2*time.Hour))
	}
}
