// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestShares(t *testing.T) {
	for _, v := range []float32{0, 1, 0.5, 0.75, 1.0 / 1024} {
		if got := unpackShare(packShare(v)); got != v {
			t.Errorf("unpackShare(packShare(%v)) = %v, want the same", v, got)
		}
	}

	if got := unpackShare(packShare(nan())); !isNaN(got) {
		t.Errorf("unpackShare(packShare(NaN)) = %v, want NaN", got)
	}

	for v, want := range map[float32]float32{1e-20: 0, 2: 1, float32(math.Inf(1)): 1} {
		if got := unpackShare(packShare(v)); math.Abs(float64(got-want)) > 0.002 {
			t.Errorf("%v becomes %v, want about %v", v, got, want)
		}
	}

	source := rand.New(rand.NewPCG(1, 1))
	last := float32(0)
	lastCode := uint16(0)
	for i := range 10000 {
		v := float32(math.Exp2(-29 * source.Float64()))
		if i%2 == 1 {
			v = 1 - v
		}

		code := packShare(v)
		if got := float64(unpackShare(code)); math.Abs(got-float64(v)) > min(float64(v), 1-float64(v))/2048*1.0001 {
			t.Fatalf("unpackShare(packShare(%v)) = %v, want it to 1/2048", v, got)
		}

		if v > last && code < lastCode || v < last && code > lastCode {
			t.Fatalf("codes of %v and %v change places, want the order of the shares", v, last)
		}

		last = v
		lastCode = code
	}
}

func TestCells(t *testing.T) {
	for name, a := range map[string]atoms{
		"empty": emptySlot(), "zeros": {}, "huge": {1e10, 1e10, 1e10}, "a median of zero": {0, 1, 2},
	} {
		got := a.pack().unpack()
		for i := range a {
			if a[i] != got[i] && !(isNaN(a[i]) && isNaN(got[i])) {
				t.Errorf("%s: pack().unpack(): atom %d is %v, want %v", name, i, got[i], a[i])
			}
		}

		if !a.pack().valid() {
			t.Errorf("%s: pack().valid() = false, want true", name)
		}
	}

	for name, c := range map[string]cell{
		"a top without samples":    {top: 1, parts: [top]uint16{absent, absent}},
		"a median above the high":  {top: 1, parts: [top]uint16{wholeShare, 5000}},
		"a high above the top":     {top: 1, parts: [top]uint16{0, wholeShare + 1}},
		"a median without samples": {top: nan(), parts: [top]uint16{0, absent}},
		"infinite":                 {top: float32(math.Inf(1))},
	} {
		if c.valid() {
			t.Errorf("%s: valid() = true, want false", name)
		}
	}
}
