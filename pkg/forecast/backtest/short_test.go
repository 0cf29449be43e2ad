// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
)

// TestAutoOnShortHistories bounds the loss relative to plain where experts are compared on a day to five days, whatever the shape.
func TestAutoOnShortHistories(t *testing.T) {
	const slots, days, most = 144, 8, 1.35
	cfg := Config{Reference: registry.Plain, First: 2 * 24 * time.Hour}
	for name := range roughShapes(rand.New(rand.NewPCG(0, 0))) {
		shape := roughShapes(rand.New(rand.NewPCG(5, 11)))[name]
		s := series.Series{Start: time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC), Step: 10 * time.Minute, Values: make([]float64, days*slots)}
		for i := range s.Values {
			// The end of the shapes, where levels change.
			s.Values[i] = shape(14+i/slots, i%slots)
		}

		results, err := Run(cfg, name, s, algorithms(t, registry.Auto, registry.Plain))
		if err != nil {
			t.Fatal(err)
		}

		r := results[0]
		t.Logf("%-28s wape x%.3f pinball x%.3f coverage %.3f", r.Name, r.WAPERatio, r.PinballRatio, r.Coverage)

		if r.Issued != days-2 {
			t.Errorf("%s: %d of %d origins issued, want %d", name, r.Issued, r.Origins, days-2)
		}
		if worst := max(float64(r.WAPERatio), float64(r.PinballRatio)); worst > most {
			t.Errorf("%s: %.3f times plain, want at most %v", name, worst, most)
		}
	}
}
