// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// draw returns n values of a shape, all above ValueFloor.
func draw(shape string, n int, rng *rand.Rand) []float64 {
	out := make([]float64, n)
	for i := range out {
		switch shape {
		case "uniform":
			out[i] = 1 + rng.Float64()
		case "lognormal":
			out[i] = math.Exp(rng.NormFloat64())
		case "constant":
			out[i] = 0.1234
		default: // two levels
			out[i] = 1 + 9*math.Floor(rng.Float64()*1.3)
		}
	}
	return out
}

// TestQuantileError compares both types with the exact quantile: the order statistics on both sides of the rank,
// widened by the stated error, must enclose the estimate.
func TestQuantileError(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, shape := range []string{"uniform", "lognormal", "constant", "levels"} {
		for _, scale := range []float64{1e-6, 1, 3e9} {
			values := draw(shape, 5000, rng)
			h, _ := New(0)
			var c Counts
			for i := range values {
				values[i] *= scale
				if !h.Add(values[i], 1, start) || !c.Add(values[i]) {
					t.Fatalf("%v was refused", values[i])
				}
			}
			slices.Sort(values)
			bias := 0.0
			for _, q := range []float64{0, 0.5, 0.66, 0.9, 0.95, 0.99, 0.999, 1} {
				rank := q * float64(len(values)-1)
				low, high := values[max(0, int(rank)-1)], values[min(len(values)-1, int(rank)+2)]
				for name, got := range map[string]float64{"Histogram": h.Quantile(q), "Counts": c.Quantile(q)} {
					if got < low*(1-RelativeError) || got > high*(1+RelativeError) {
						t.Errorf("%s, %s of scale %v: quantile %v = %v, exact within %v..%v", name, shape, scale, q, got, low, high)
					}
				}
				bias += (h.Quantile(q)/values[int(math.Round(rank))] - 1) / 8
			}
			if math.Abs(bias) > 0.004 {
				t.Errorf("%s of scale %v: mean error %+.4f, want no bias", shape, scale, bias)
			}
		}
	}
}

func TestConstantIsExact(t *testing.T) {
	h, _ := New(24 * time.Hour)
	var c Counts
	for i := range 100 {
		h.Add(0.3, 1, start.Add(time.Duration(i)*time.Minute))
		c.Add(0.3)
	}
	if got := h.Quantile(0.9); got != 0.3 {
		t.Errorf("quantile of a constant 0.3 = %v", got)
	}
	if got := c.Quantile(0.9); math.Abs(got-0.3) > 1e-7 {
		t.Errorf("quantile of counts of a constant 0.3 = %v", got)
	}
	if samples, excess := c.Above(0.2); samples != 100 || math.Abs(excess-10) > 1e-5 {
		t.Errorf("above 0.2: %v samples with %v in excess, want 100 and 10", samples, excess)
	}
}

func TestRefusesWhatIsNoMeasurement(t *testing.T) {
	h, _ := New(0)
	var c Counts
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		if h.Add(v, 1, start) || h.Add(1, v, start) || c.Add(v) {
			t.Errorf("%v was counted", v)
		}
	}
	if h.Add(1, 0, start) || c.Add(math.MaxFloat64) {
		t.Error("weight 0 or a value beyond float32 was counted")
	}
	if !h.Empty() || !math.IsNaN(h.Quantile(0.5)) || !math.IsNaN(h.Max()) || !math.IsNaN(c.Quantile(0.5)) || !math.IsNaN(h.ShareAbove(1)) {
		t.Error("an empty histogram has statistics")
	}
	if _, err := New(-time.Hour); err == nil {
		t.Error("a half-life below zero was accepted")
	}
	if h.Add(0, 1, start); h.Quantile(0.99) != 0 {
		t.Errorf("quantile of a zero = %v", h.Quantile(0.99))
	}
}

func TestDecay(t *testing.T) {
	h, _ := New(24 * time.Hour)
	h.Add(1, 1, start)
	h.Add(2, 1, start.Add(24*time.Hour))
	// Weights 1 and 2: two thirds lie at 2.
	if got := h.ShareAbove(1.5); math.Abs(got-2.0/3) > 1e-9 {
		t.Errorf("share above = %v, want 2/3", got)
	}
	// A sample that comes late counts as if it had come in time.
	late, _ := New(24 * time.Hour)
	late.Add(2, 1, start.Add(24*time.Hour))
	late.Add(1, 1, start)
	if got := late.ShareAbove(1.5); math.Abs(got-2.0/3) > 1e-9 {
		t.Errorf("late: share above = %v, want 2/3", got)
	}
	h.Add(3, 1, start.Add(1000*24*time.Hour))
	if got := h.Quantile(0.01); got < 2.9 {
		t.Errorf("after 1000 half-lives the old samples still count: %v", got)
	}
	if h.Add(9, 1, start); math.IsNaN(h.Quantile(0.5)) {
		t.Error("a sample from long ago broke the histogram")
	}
}

func TestMergeEqualsAddingAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	all, _ := New(24 * time.Hour)
	a, _ := New(24 * time.Hour)
	b, _ := New(24 * time.Hour)
	var ca, cb, call Counts
	for i := range 4000 {
		v, at := math.Exp(rng.NormFloat64()), start.Add(time.Duration(i)*time.Minute)
		all.Add(v, 1, at)
		call.Add(v)
		if i%3 == 0 {
			a.Add(v, 1, at)
			ca.Add(v)
		} else {
			b.Add(v, 1, at)
			cb.Add(v)
		}
	}
	if err := a.Merge(b); err != nil || !ca.Merge(&cb) {
		t.Fatal(err)
	}
	for q := 0.0; q <= 1; q += 0.05 {
		if x, y := a.Quantile(q), all.Quantile(q); math.Abs(x-y) > 1e-9*y {
			t.Errorf("q %v: merged %v, all %v", q, x, y)
		}
		if x, y := ca.Quantile(q), call.Quantile(q); math.Abs(x-y) > 2*RelativeError*y {
			t.Errorf("q %v: merged counts %v, all %v", q, x, y)
		}
	}
	other, _ := New(time.Hour)
	if err := a.Merge(other); err == nil {
		t.Error("histograms of unlike half-lives were merged")
	}
}

func TestQuantileIsMonotoneAndScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	one, _ := New(0)
	four, _ := New(0)
	for range 3000 {
		v := math.Exp(2 * rng.NormFloat64())
		one.Add(v, 1, start)
		four.Add(4*v, 1, start)
	}
	last := 0.0
	for q := 0.0; q <= 1; q += 0.001 {
		got := one.Quantile(q)
		if got < last {
			t.Fatalf("quantile falls at %v", q)
		}
		last = got
		if scaled := four.Quantile(q); math.Abs(scaled-4*got) > 1e-9*scaled {
			t.Fatalf("quantile %v: %v times 4 is not %v", q, got, scaled)
		}
	}
}

func TestWideRangesStayBounded(t *testing.T) {
	h, _ := New(0)
	var c Counts
	for _, v := range []float64{1, 1e-8, 1e30, 5, 1e-3, 1e30} {
		h.Add(v, 1, start)
		c.Add(v)
	}
	if len(h.weights) > MaxBuckets || c.len() > MaxCountBuckets {
		t.Fatalf("%d and %d buckets", len(h.weights), c.len())
	}
	if h.Quantile(1) != 1e30 || c.Total() != 6 || h.Quantile(0) != 1e-8 {
		t.Errorf("max %v, total %v, min %v", h.Quantile(1), c.Total(), h.Quantile(0))
	}
}

func TestCountsBroaden(t *testing.T) {
	var c, other Counts
	for range 70_000 {
		c.Add(1)
		other.Add(1.01)
	}
	c.Add(2)
	if c.Total() != 70_001 || c.narrow != nil || !c.Merge(&other) || c.Total() != 140_001 {
		t.Errorf("total %d", c.Total())
	}
	if samples, _ := c.Above(1.5); samples != 1 {
		t.Errorf("%v samples above 1.5, want 1", samples)
	}
	// The lowest buckets fold into one, past what two bytes hold.
	var low Counts
	for range 40_000 {
		low.Add(1)
		low.Add(1.1)
	}
	low.Add(1000)
	if got, _ := low.Above(100); low.Total() != 80_001 || got != 1 {
		t.Errorf("folded: total %d, %v above 100", low.Total(), got)
	}
}

func TestCheckpoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{0, 1, 5000} {
		h, _ := New(24 * time.Hour)
		var c Counts
		for i := range n {
			v := math.Exp(rng.NormFloat64()) * math.Floor(rng.Float64()*3)
			h.Add(v, 1, start.Add(time.Duration(i)*time.Minute))
			c.Add(v)
		}
		hb, _ := h.MarshalBinary()
		cb, _ := c.MarshalBinary()
		var h2 Histogram
		var c2 Counts
		if err := errors.Join(h2.UnmarshalBinary(hb), c2.UnmarshalBinary(cb)); err != nil {
			t.Fatalf("%d samples: %v", n, err)
		}
		for _, q := range []float64{0.1, 0.5, 0.99, 1} {
			if x, y := h.Quantile(q), h2.Quantile(q); x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
				t.Errorf("%d samples: quantile %v is %v, was %v", n, q, y, x)
			}
			if x, y := c.Quantile(q), c2.Quantile(q); x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
				t.Errorf("%d samples: quantile of counts %v is %v, was %v", n, q, y, x)
			}
		}
		for i := range cb {
			broken := bytes.Clone(cb)
			broken[i] ^= 0x40
			if err := new(Counts).UnmarshalBinary(broken); err == nil {
				t.Fatalf("byte %d altered, no error", i)
			}
		}
		for i := range hb[:min(len(hb), 200)] {
			if err := new(Histogram).UnmarshalBinary(hb[:i]); err == nil {
				t.Fatalf("cut to %d bytes, no error", i)
			}
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	h, _ := New(time.Hour)
	var c Counts
	for i := range 50 {
		h.Add(float64(i), 1, start)
		c.Add(float64(i))
	}
	hb, _ := h.MarshalBinary()
	cb, _ := c.MarshalBinary()
	f.Add(hb[:len(hb)-checksumSize])
	f.Add(cb[:len(cb)-checksumSize])
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is made right, so that what it protects is tested too.
		data := seal(body)
		var h Histogram
		if h.UnmarshalBinary(data) == nil && !h.Empty() {
			if q := h.Quantile(0.9); math.IsNaN(q) || q < 0 {
				t.Fatalf("quantile %v", q)
			}
			h.Add(1, 1, start)
		}
		var c Counts
		if c.UnmarshalBinary(data) == nil && c.Total() > 0 {
			if q := c.Quantile(0.9); math.IsNaN(q) || q < 0 {
				t.Fatalf("quantile of counts %v", q)
			}
			c.Add(1)
		}
	})
}

func BenchmarkHistogramAdd(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	values := draw("lognormal", 4096, rng)
	h, _ := New(24 * time.Hour)
	for i, v := range values {
		h.Add(v, 1, start.Add(time.Duration(i)*time.Second))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		h.Add(values[i&4095], 1, start.Add(time.Duration(i)*time.Second))
		i++
	}
}

func BenchmarkCountsAdd(b *testing.B) {
	values := draw("lognormal", 4096, rand.New(rand.NewPCG(1, 1)))
	var c Counts
	for _, v := range values {
		c.Add(v)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.Add(values[i&4095])
		i++
	}
}

func BenchmarkAddCounts(b *testing.B) {
	var c Counts
	for _, v := range draw("lognormal", 1440, rand.New(rand.NewPCG(1, 1))) {
		c.Add(v)
	}
	h, _ := New(24 * time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		h.Reset()
		h.AddCounts(&c, 1, start)
	}
}
