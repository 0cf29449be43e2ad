// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"math"
	"testing"
	"testing/quick"
)

// pods returns n ready pods with a usage in thousandths of a request of 1.
func pods(n int, use int64) []Pod {
	out := make([]Pod, n)
	for i := range out {
		out[i] = Pod{Usage: use, Request: 1000}
	}

	return out
}

func TestReplicasForUtilization(t *testing.T) {
	with := func(base []Pod, more ...Pod) []Pod { return append(base, more...) }
	missing := Pod{State: Missing, Request: 1000}
	unready := Pod{State: Unready, Usage: 900, Request: 1000}
	for _, c := range []struct {
		name string
		pods []Pod
		want int32
	}{
		{"at the target", pods(10, 700), 10},
		{"within tolerance above", pods(10, 760), 10},
		{"within tolerance below", pods(10, 640), 10},
		{"above", pods(10, 840), 12},
		{"far above", pods(10, 2100), 30},
		{"below", pods(10, 350), 5},
		{"idle", pods(10, 0), 0},
		{"a part of a per cent does not count", pods(10, 779), 10},
		// When scaling up, a missing pod counts as idle: 10 × 140 % over 11 pods is 127 %, which is 20 pods instead of 22.
		{"above, one missing", with(pods(10, 1400), missing), 20},
		{"above, but not with the missing ones", with(pods(10, 800), missing, missing, missing), 13},
		// When scaling down, it counts as used to its request: (10 × 35 % + 100 %) / 11 is 40 %.
		{"below, one missing", with(pods(10, 350), missing), 7},
		{"below, but not with the missing ones", with(pods(4, 600), missing, missing, missing, missing), 8},
		{"above, half of the pods start", with(pods(10, 1400), unready, unready, unready, unready, unready), 20},
		{"below, an unready pod is not looked at", with(pods(10, 350), unready), 5},
		{"a sample of a pod that is gone", with(pods(10, 350), Pod{State: Unlisted, Usage: 5000}), 5},
	} {
		got, err := ReplicasForUtilization(c.pods, int32(len(c.pods)), 70, DefaultTolerance())
		if err != nil || got != c.want {
			t.Errorf("%s: ReplicasForUtilization = %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

func TestReplicasForAverage(t *testing.T) {
	missing := Pod{State: Missing}
	for _, c := range []struct {
		name   string
		pods   []Pod
		target int64
		want   int32
	}{
		{"above", pods(3, 200), 100, 6},
		// (5 × 20m + 100m) / 6 is 33m, a third of the target.
		{"below a unit, one missing", append(pods(5, 20), missing), 100, 2},
		{"a part of a thousandth does not count", append(pods(2, 110), Pod{Usage: 112}), 100, 3},
		{"a sample of a pod that is gone", append(pods(1, 100), Pod{State: Unlisted, Usage: 500}), 100, 3},
	} {
		got, err := ReplicasForAverage(c.pods, int32(len(c.pods)), c.target, DefaultTolerance())
		if err != nil || got != c.want {
			t.Errorf("%s: ReplicasForAverage = %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

func TestReplicasForPods_Invalid(t *testing.T) {
	for name, call := range map[string]func() (int32, error){
		"no pods": func() (int32, error) { return ReplicasForUtilization(nil, 3, 70, DefaultTolerance()) },
		"all missing": func() (int32, error) {
			return ReplicasForUtilization([]Pod{{State: Missing, Request: 1}}, 1, 70, DefaultTolerance())
		},
		"no request": func() (int32, error) { return ReplicasForUtilization([]Pod{{Usage: 1}}, 1, 70, DefaultTolerance()) },
		"no average": func() (int32, error) { return ReplicasForAverage([]Pod{{State: Missing}}, 1, 70, DefaultTolerance()) },
	} {
		if got, err := call(); !errors.Is(err, ErrNoMetric) {
			t.Errorf("%s: %d, %v, want ErrNoMetric", name, got, err)
		}
	}

	for _, target := range []int64{0, -1} {
		if _, err := ReplicasForUtilization(pods(1, 1), 1, int32(target), DefaultTolerance()); err == nil {
			t.Errorf("ReplicasForUtilization with a target of %v succeeds, want an error", target)
		}
		if _, err := ReplicasForAverage(pods(1, 1), 1, target, DefaultTolerance()); err == nil {
			t.Errorf("ReplicasForAverage with a target of %v succeeds, want an error", target)
		}
		if _, err := ReplicasForTotal(1, target, 1, DefaultTolerance()); err == nil {
			t.Errorf("ReplicasForTotal with a target of %v succeeds, want an error", target)
		}
		if _, err := ReplicasForValue(1, target, 1, 1, DefaultTolerance()); err == nil {
			t.Errorf("ReplicasForValue with a target of %v succeeds, want an error", target)
		}
	}
}

func TestReplicasForTotalAndValue(t *testing.T) {
	for _, c := range []struct {
		value         int64
		current, want int32
	}{{70_000, 10, 10}, {76_000, 10, 10}, {78_000, 10, 12}, {0, 3, 0}, {math.MaxInt64, 3, math.MaxInt32}, {3000, 0, 1}, {0, 0, 0}, {-5000, 3, 0}} {
		if got, err := ReplicasForTotal(c.value, 7000, c.current, DefaultTolerance()); err != nil || got != c.want {
			t.Errorf("ReplicasForTotal(%v) at %d: %d, %v; want %d", c.value, c.current, got, err, c.want)
		}
	}

	for _, c := range []struct {
		value                int64
		current, ready, want int32
	}{{150_000, 4, 4, 6}, {105_000, 4, 3, 4}, {300_000, 0, 0, 3}, {105_000, 0, 0, 2}, {0, 0, 0, 0}, {-50_000, 3, 3, -1}, {300_000, 3, 0, 0}} {
		if got, err := ReplicasForValue(c.value, 100_000, c.current, c.ready, DefaultTolerance()); err != nil || got != c.want {
			t.Errorf("ReplicasForValue(%v) at %d replicas, %d ready: %d, %v; want %d", c.value, c.current, c.ready, got, err, c.want)
		}
	}
}

func TestReplicasForUtilization_Monotone(t *testing.T) {
	check := func(n uint8, a, b uint16) bool {
		count := int(n)%50 + 1
		x, errX := ReplicasForUtilization(pods(count, int64(min(a, b))), int32(count), 70, DefaultTolerance())
		y, errY := ReplicasForUtilization(pods(count, int64(max(a, b))), int32(count), 70, DefaultTolerance())

		return errX == nil && errY == nil && x <= y && x >= 0
	}

	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestThousandths(t *testing.T) {
	for v, want := range map[float64]int64{0: 0, 0.9: 900, 0.0001: 1, -0.25: -250, -0.0001: 0, 7: 7000, math.Inf(1): math.MaxInt64 / 2, math.Inf(-1): -math.MaxInt64 / 2} {
		if got := Thousandths(v); got != want && got != want+1 && got != want-1 || v > -1e9 && v < 1e9 && got != want {
			t.Errorf("Thousandths(%v) = %d, want %d", v, got, want)
		}
	}

	if got := Thousandths(math.NaN()); got != 0 {
		t.Errorf("Thousandths(NaN) = %d, want 0", got)
	}
}

func TestReplicasForLoad(t *testing.T) {
	for _, c := range []struct {
		load, perPod float64
		want         int32
	}{{7, 0.7, 10}, {7.1, 0.7, 11}, {0, 1, 0}, {math.NaN(), 1, 0}, {-1, 1, 0}, {1, 0, 0}, {math.Inf(1), 1, 0}} {
		if got := ReplicasForLoad(c.load, c.perPod); got != c.want {
			t.Errorf("ForLoad(%v, %v) = %d, want %d", c.load, c.perPod, got, c.want)
		}
	}
}
