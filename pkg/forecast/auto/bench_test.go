// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"testing"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// history returns 14 days of minutes of a family.
func history(b testing.TB, name string) series.Series {
	b.Helper()

	for _, f := range families.All() {
		if f.Name == name {
			return f.Make(3, 14, time.Minute)
		}
	}

	b.Fatalf("no family %q, want one of that name", name)
	return series.Series{}
}

// BenchmarkFit is one forecast of a day from 14 days of raw minutes: everything counts.
func BenchmarkFit(b *testing.B) {
	h := history(b, "weekday and weekend")
	b.ReportAllocs()

	for b.Loop() {
		if _, err := (Algorithm{}).Forecast(h, day); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefresh is one forecast of a day from state: 10,000 series on two cores cost 5,000 of it.
func BenchmarkRefresh(b *testing.B) {
	h := history(b, "weekday and weekend")
	m := NewModel(h.Step)
	for i, v := range h.Values {
		m.Observe(h.Time(i), v)
	}

	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Forecast(day); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkObserve is one sample.
func BenchmarkObserve(b *testing.B) {
	h := history(b, "weekday and weekend")
	m := NewModel(h.Step)
	at := h.Start
	i := 0
	b.ReportAllocs()

	for b.Loop() {
		m.Observe(at, h.Values[i%len(h.Values)])
		at = at.Add(h.Step)
		i++
	}
}
