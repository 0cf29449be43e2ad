// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// minutes returns a forecast with a value each minute from noon on.
func minutes(values ...float64) []Point {
	out := make([]Point, len(values))
	for i, v := range values {
		out[i] = Point{At: noon().Add(time.Duration(i) * time.Minute), Value: v}
	}

	return out
}

func TestPeakInWindow(t *testing.T) {
	for _, c := range []struct {
		name   string
		points []Point
		after  time.Duration
		window time.Duration
		want   float64
		err    error
	}{
		{"the highest of the window", minutes(1, 5, 2, 9), 0, 2 * time.Minute, 5, nil},
		{"the window ends before the value that begins then", minutes(1, 5, 2, 9), 0, 3 * time.Minute, 5, nil},
		{"a moment later it counts", minutes(1, 5, 2, 9), time.Second, 3 * time.Minute, 9, nil},
		{"the value that holds now", minutes(7, 1, 1), 30 * time.Second, time.Minute, 7, nil},
		{"what is over does not count", minutes(7, 1, 1), time.Minute, time.Minute, 1, nil},
		{"less than a core", minutes(0.9, 0.4), 0, time.Minute, 0.9, nil},
		{"nothing is a value", minutes(0, 0), 0, time.Minute, 0, nil},
		{"it has ended", minutes(7, 8), 2 * time.Minute, time.Hour, 0, ErrOutdated},
		{"it has not begun", minutes(7, 8), -time.Hour, time.Minute, 0, ErrOutdated},
		{"there is none", nil, 0, time.Hour, 0, ErrNoMetric},
		{"NaN", minutes(1, math.NaN()), 0, time.Hour, 0, ErrNoMetric},
		{"infinite", minutes(math.Inf(1)), 0, time.Hour, 0, ErrNoMetric},
		{"negative", minutes(-1), 0, time.Hour, 0, ErrNoMetric},
		{"NaN outside of the window", minutes(1, 2, math.NaN()), 0, 2 * time.Minute, 2, nil},
	} {
		got, err := PeakInWindow(c.points, noon().Add(c.after), c.window)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

// TestPeakInWindow_Random checks with random forecasts that the peak is one of the values and that a wider window has no lower one.
func TestPeakInWindow_Random(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		values := make([]float64, 1+r.IntN(50))
		for i := range values {
			values[i] = float64(r.IntN(20))
		}

		points := minutes(values...)
		now := noon().Add(time.Duration(r.IntN(3600)) * time.Second)

		window := time.Duration(r.IntN(3600)) * time.Second
		narrow, err := PeakInWindow(points, now, window)
		if err != nil {
			continue
		}

		wide, err := PeakInWindow(points, now, window+time.Minute)
		if err != nil || wide < narrow {
			t.Fatalf("%v at %s: peak %v in %s, %v (%v) in a minute more, want no lower one", values, now, narrow, window, wide, err)
		}
	}
}

func TestCronReplicas(t *testing.T) {
	w, err := NewCronWindow("day", "0 12 * * *", "0 13 * * *", nil, 5)
	if err != nil {
		t.Fatal(err)
	}

	for after, want := range map[time.Duration]int32{0: 5, time.Hour - time.Second: 5, time.Hour: 2, -time.Second: 2} {
		if got := CronReplicas([]CronWindow{w}, 2, noon().Add(after)); got != want {
			t.Errorf("CronReplicas %s after noon = %d, want %d", after, got, want)
		}
	}

	if got := CronReplicas([]CronWindow{w}, 9, noon()); got != 9 {
		t.Errorf("CronReplicas with a floor below minReplicas = %d, want 9", got)
	}
}
