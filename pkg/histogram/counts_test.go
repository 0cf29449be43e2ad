// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCountAboveAgreesWithAbove also compares both with plain counting.
func TestCountAboveAgreesWithAbove(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 50 {
		var c Counts
		values := make([]float64, 1+rng.IntN(3000))
		for i := range values {
			values[i] = math.Exp(rng.NormFloat64()) * math.Floor(4*rng.Float64())
			c.Add(values[i])
		}

		for _, x := range []float64{0, 1e-12, 0.5, 1, values[0], 2 * values[0], 100, -1} {
			above, excess := c.Above(x)
			fast := c.CountAbove(x)
			if math.Abs(above-fast) > 1e-9 {
				t.Fatalf("Above(%v) = %v, CountAbove = %v; want the same", x, above, fast)
			}

			if x < c.Max()/127 || math.IsNaN(excess) || excess < 0 {
				continue
			}

			low := 0
			high := 0
			for _, v := range values {
				if v > x*(1+RelativeError) {
					low++
				}
				if v > x*(1-RelativeError) {
					high++
				}
			}

			if above < float64(low)-1e-9 || above > float64(high)+1e-9 {
				t.Fatalf("%v of %d samples above %v, want %d to %d", above, len(values), x, low, high)
			}
		}
	}
}

func TestAppendTailEndsAtTheShare(t *testing.T) {
	var c Counts
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(i + 1)
		c.Add(values[i])
	}

	tail := c.AppendTail(nil, 0.05)
	last := tail[len(tail)-1]
	if last.Share != 0.05 || math.Abs(last.Value-950) > 950*RelativeError || tail[0].Share == 0 || tail[0].Value > 1000 {
		t.Errorf("AppendTail(0.05) goes from %+v to %+v, want it to end at share 0.05 near 950", tail[0], last)
	}
	if !slices.IsSortedFunc(tail, func(a, b Point) int { return cmp.Compare(b.Value, a.Value) }) {
		t.Errorf("AppendTail(0.05) = %v, want values in descending order", tail)
	}

	for _, p := range tail[1 : len(tail)-1] {
		if want := c.CountAbove(p.Value) / 1000; math.Abs(p.Share-want) > 1e-12 {
			t.Errorf("above %v lie %v of the samples, want %v", p.Value, p.Share, want)
		}
	}

	if got := new(Counts).AppendTail(nil, 1); len(got) != 0 {
		t.Errorf("AppendTail of empty counts = %v, want no points", got)
	}
}
