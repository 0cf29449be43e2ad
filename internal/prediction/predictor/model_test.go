// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"math"
	"testing"
	"time"
)

// TestTimeZone checks that a Sunday evening in the time zone continues until its midnight.
func TestTimeZone(t *testing.T) {
	zone := time.FixedZone("UTC+8", 8*3600)
	p, err := newPlan(cpuOf("web"), zone)
	if err != nil {
		t.Fatal(err)
	}

	m := p.newModel()
	now := time.Date(2026, 11, 22, 19, 0, 0, 0, zone) // A Sunday.
	for at := now.AddDate(0, 0, -20); at.Before(now); at = at.Add(time.Minute) {
		m.observe(at, levelOf(at))
	}

	f, err := m.forecast(12 * time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	for i, q := range f.Values {
		at := f.Start.Add(time.Duration(i) * f.Step).In(zone)
		if want := levelOf(at); math.Abs(q.At(0.5)-want) > 0.1*want {
			t.Fatalf("at %s: %v, want %v", at, q.At(0.5), want)
		}
	}
}

// levelOf returns the use on a working day or on a weekend, by the clock of a time.
func levelOf(at time.Time) float64 {
	if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
		return 0.65
	}

	return 2
}
