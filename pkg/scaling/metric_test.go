// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"math"
	"testing"
	"testing/quick"
)

// pods returns n ready pods with a usage as a fraction of a request of 1.
func pods(n int, use float64) []Pod {
	out := make([]Pod, n)
	for i := range out {
		out[i] = Pod{Usage: use, Request: 1}
	}

	return out
}

func TestReplicasForPods(t *testing.T) {
	with := func(base []Pod, more ...Pod) []Pod { return append(base, more...) }
	missing := Pod{State: Missing, Request: 1}
	unready := Pod{State: Unready, Usage: 0.9, Request: 1}
	for _, c := range []struct {
		name string
		pods []Pod
		want int32
	}{
		{"at the target", pods(10, 0.7), 10},
		{"within tolerance above", pods(10, 0.76), 10},
		{"within tolerance below", pods(10, 0.64), 10},
		{"above", pods(10, 0.84), 12},
		{"far above", pods(10, 2.1), 30},
		{"below", pods(10, 0.35), 5},
		{"idle", pods(10, 0), 0},
		// When scaling up, a missing pod counts as idle: 10 × 1.4 over 11 pods is 14 / 0.7 = 20 instead of 22.
		{"above, one missing", with(pods(10, 1.4), missing), 20},
		{"above, but not with the missing ones", with(pods(10, 0.8), missing, missing, missing), 13},
		// When scaling down, it counts as used to its request: (10 × 0.35 + 1) / 0.7 = 6.4.
		{"below, one missing", with(pods(10, 0.35), missing), 7},
		{"below, but not with the missing ones", with(pods(4, 0.6), missing, missing, missing, missing), 8},
		{"above, half of the pods start", with(pods(10, 1.4), unready, unready, unready, unready, unready), 20},
		{"below, an unready pod is not looked at", with(pods(10, 0.35), unready), 5},
		{"a sample of NaN is no sample", with(pods(10, 1.4), Pod{Usage: math.NaN(), Request: 1}), 20},
	} {
		got, err := ReplicasForPods(c.pods, int32(len(c.pods)), 0.7, DefaultTolerance())
		if err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

func TestReplicasForPods_Invalid(t *testing.T) {
	for name, call := range map[string]func() (int32, error){
		"no pods": func() (int32, error) { return ReplicasForPods(nil, 3, 0.7, DefaultTolerance()) },
		"all missing": func() (int32, error) {
			return ReplicasForPods([]Pod{{State: Missing, Request: 1}}, 1, 0.7, DefaultTolerance())
		},
		"no request": func() (int32, error) { return ReplicasForPods([]Pod{{Usage: 1}}, 1, 0.7, DefaultTolerance()) },
		"NaN total":  func() (int32, error) { return ReplicasForTotal(math.NaN(), 1, 1, DefaultTolerance()) },
		"Inf ratio":  func() (int32, error) { return ReplicasForValue(math.Inf(1), 1, 1, 1, DefaultTolerance()) },
	} {
		if got, err := call(); !errors.Is(err, ErrNoMetric) {
			t.Errorf("%s: %d, %v, want ErrNoMetric", name, got, err)
		}
	}

	for _, target := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := ReplicasForPods(pods(1, 1), 1, target, DefaultTolerance()); err == nil {
			t.Errorf("ReplicasForPods with a target of %v succeeds, want an error", target)
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
		value   float64
		current int32
		want    int32
	}{{70, 10, 10}, {76, 10, 10}, {78, 10, 12}, {7.0000001, 2, 2}, {0, 3, 0}, {1e300, 3, math.MaxInt32}, {3, 0, 1}} {
		if got, err := ReplicasForTotal(c.value, 7, c.current, DefaultTolerance()); err != nil || got != c.want {
			t.Errorf("Total(%v) at %d: %d, %v; want %d", c.value, c.current, got, err, c.want)
		}
	}

	if got, err := ReplicasForValue(150, 100, 4, 4, DefaultTolerance()); err != nil || got != 6 {
		t.Errorf("Ratio: %d, %v; want 6", got, err)
	}
	if got, err := ReplicasForValue(105, 100, 4, 3, DefaultTolerance()); err != nil || got != 4 {
		t.Errorf("Ratio within tolerance: %d, %v; want the current 4", got, err)
	}
}

func TestReplicasForPods_Monotone(t *testing.T) {
	check := func(n uint8, a, b uint16) bool {
		count := int(n)%50 + 1
		low := float64(min(a, b)) / 10_000
		high := float64(max(a, b)) / 10_000
		x, errX := ReplicasForPods(pods(count, low), int32(count), 0.7, DefaultTolerance())
		y, errY := ReplicasForPods(pods(count, high), int32(count), 0.7, DefaultTolerance())

		return errX == nil && errY == nil && x <= y && x >= 0
	}

	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
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
