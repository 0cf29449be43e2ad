// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// TestBound checks that a limit bounds samples only where it is enforced.
func TestBound(t *testing.T) {
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	key := ContainerKey{Pod: "web-0", Container: "app", Node: "n1"}
	c := NewCapacities()
	c.AddNode("n1", CPU, 8)
	c.AddLimit("", "web-0", "app", CPU, start, start.Add(24*time.Hour), 1)

	for name, tc := range map[string]struct {
		values []float64
		want   float64
	}{
		"below the limit":       {slices.Repeat([]float64{0.5}, 100), 1.1},
		"some above":            {append(slices.Repeat([]float64{0.5}, 100), 4000, 2), 1.1},
		"one of few":            {[]float64{0.5, 0.5, 300}, 1.1},
		"the limit is not kept": {append(slices.Repeat([]float64{0.5}, 90), slices.Repeat([]float64{3}, 10)...), 8.08},
	} {
		chunk := Chunk{Key: key, Series: series.Series{Start: start, Step: time.Minute, Values: tc.values}}
		if got := c.Bound(chunk, CPU); got < 0.999*tc.want || got > 1.001*tc.want {
			t.Errorf("Bound(%s) = %v, want %v", name, got, tc.want)
		}
	}
}
