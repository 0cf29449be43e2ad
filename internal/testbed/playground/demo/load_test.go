// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func peak() *Load {
	d := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	return &Load{
		Metric: "requests", Namespace: "shop", Low: 100, High: 400, Period: d(6 * time.Hour), Busy: d(3 * time.Hour), Ramp: d(time.Minute),
		RiseAfter: d(2 * time.Minute),
	}
}

// TestLoadRises: the load is low before the rise, high after it, and equal in each period of the past.
func TestLoadRises(t *testing.T) {
	l := peak()
	if err := l.validate(); err != nil {
		t.Fatal(err)
	}

	end := time.Date(2026, 3, 4, 10, 1, 17, 0, time.UTC)
	rises := l.RiseTime(end)
	if want := end.Add(2 * time.Minute); !rises.Equal(want) {
		t.Errorf("RiseTime(%s) = %s, want %s", end, rises, want)
	}

	for period := -56; period <= 1; period++ {
		at := rises.Add(time.Duration(period) * 6 * time.Hour)
		before := l.At(at.Add(-time.Second), end)
		after := l.At(at.Add(time.Minute), end)
		fallen := l.At(at.Add(3*time.Hour+2*time.Minute), end)

		if l.IsHigh(before) || !l.IsHigh(after) || l.IsHigh(fallen) || math.Abs(before-100) > 5 || math.Abs(after-400) > 20 {
			t.Fatalf("At in period %d = %v before the rise, %v after it, %v after the fall; want about 100, about 400, low", period, before, after, fallen)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, edit := range map[string]func(*Load){
		"no metric":              func(l *Load) { l.Metric = "" },
		"high below low":         func(l *Load) { l.High = 50 },
		"NaN":                    func(l *Load) { l.Low = math.NaN() },
		"a period of 7 h":        func(l *Load) { l.Period.Duration = 7 * time.Hour },
		"no period":              func(l *Load) { l.Period.Duration = 0 },
		"busy all the time":      func(l *Load) { l.Busy.Duration = 6 * time.Hour },
		"no ramp":                func(l *Load) { l.Ramp.Duration = 0 },
		"rises a period later":   func(l *Load) { l.RiseAfter.Duration = 6 * time.Hour },
		"rises before the start": func(l *Load) { l.RiseAfter.Duration = -1 },
	} {
		l := peak()
		edit(l)

		if l.validate() == nil {
			t.Errorf("validate of a load with %s: no error, want one", name)
		}
	}
}
