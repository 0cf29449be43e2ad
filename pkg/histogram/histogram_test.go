// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"crane.io/crane/pkg/checksum"
)

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
			var c Counts
			for i := range values {
				values[i] *= scale
				if !c.Add(values[i]) {
					t.Fatalf("Add(%v) = false, want true", values[i])
				}
			}

			h := sum(&c)
			slices.Sort(values)

			bias := 0.0
			for _, q := range []float64{0, 0.5, 0.66, 0.9, 0.95, 0.99, 0.999, 1} {
				rank := q * float64(len(values)-1)
				low := values[max(0, int(rank)-1)]
				high := values[min(len(values)-1, int(rank)+2)]
				for name, got := range map[string]float64{"Histogram": h.Quantile(q), "Counts": c.Quantile(q)} {
					if got < low*(1-RelativeError) || got > high*(1+RelativeError) {
						t.Errorf("%s, %s of scale %v: Quantile(%v) = %v, want %v..%v", name, shape, scale, q, got, low, high)
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

// sum returns a histogram of counts with weight 1.
func sum(all ...*Counts) *Histogram {
	h := &Histogram{}
	for _, c := range all {
		h.Add(c, 1)
	}

	return h
}

// counted returns the counts of values.
func counted(values ...float64) *Counts {
	c := &Counts{}
	for _, v := range values {
		c.Add(v)
	}

	return c
}

func TestConstantIsExact(t *testing.T) {
	c := counted(slices.Repeat([]float64{0.3}, 100)...)
	for name, got := range map[string]float64{"Histogram": sum(c).Quantile(0.9), "Counts": c.Quantile(0.9)} {
		if math.Abs(got-0.3) > 1e-7 {
			t.Errorf("%s: Quantile(0.9) of a constant 0.3 = %v, want 0.3", name, got)
		}
	}

	if samples, excess := c.Above(0.2); samples != 100 || math.Abs(excess-10) > 1e-5 {
		t.Errorf("above 0.2: %v samples with %v in excess, want 100 and 10", samples, excess)
	}
}

func TestAdd_RejectsInvalidValuesAndWeights(t *testing.T) {
	var c Counts
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64} {
		if c.Add(v) {
			t.Errorf("Add(%v) = true, want false", v)
		}
	}

	h := sum(&c)
	for _, weight := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0} {
		h.Add(counted(1), weight)
	}

	if !math.IsNaN(h.Quantile(0.5)) || !math.IsNaN(c.Quantile(0.5)) {
		t.Errorf("Quantile(0.5) of empty distributions = %v and %v, want NaN", h.Quantile(0.5), c.Quantile(0.5))
	}

	h.Add(counted(0), 1)

	if h.Quantile(0.99) != 0 {
		t.Errorf("Quantile(0.99) of a zero = %v, want 0", h.Quantile(0.99))
	}
}

func TestWeights(t *testing.T) {
	var h Histogram
	h.Add(counted(slices.Repeat([]float64{1}, 1000)...), 1)
	h.Add(counted(slices.Repeat([]float64{2}, 1000)...), 2)

	// Weights 1 and 2: two thirds lie at 2.
	if below, above := h.Quantile(0.33), h.Quantile(0.34); below > 1.1 || above < 1.9 {
		t.Errorf("quantiles around a third are %v and %v, want 1 and 2", below, above)
	}

	h.Reset()

	if !math.IsNaN(h.Quantile(0.5)) {
		t.Errorf("Quantile(0.5) after Reset = %v, want NaN", h.Quantile(0.5))
	}
}

func TestMergeEqualsAddingAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var a, b, all Counts
	for i := range 4000 {
		v := 1 + 3*rng.Float64() // No value is low enough relative to the highest to be folded.
		all.Add(v)

		if i%3 == 0 {
			a.Add(v)
		} else {
			b.Add(v)
		}
	}

	both := sum(&a, &b)
	if !a.Merge(&b) {
		t.Fatal("Merge = false, want true")
	}

	for q := 0.0; q <= 1; q += 0.05 {
		want := all.Quantile(q)
		if got := both.Quantile(q); math.Abs(got-want) > 2*RelativeError*want {
			t.Errorf("Quantile(%v) of the sum = %v, want %v", q, got, want)
		}
		if got := a.Quantile(q); math.Abs(got-want) > 2*RelativeError*want {
			t.Errorf("Quantile(%v) after Merge = %v, want %v", q, got, want)
		}
	}
}

func TestQuantileIsMonotoneAndScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var c, larger Counts
	for range 3000 {
		v := math.Exp(2 * rng.NormFloat64())
		c.Add(v)
		larger.Add(4 * v)
	}

	single := sum(&c)
	fourfold := sum(&larger)
	last := 0.0
	for q := 0.0; q <= 1; q += 0.001 {
		got := single.Quantile(q)
		if got < last {
			t.Fatalf("Quantile(%v) = %v, want at least the %v of a smaller share", q, got, last)
		}

		last = got
		if scaled := fourfold.Quantile(q); math.Abs(scaled-4*got) > 1e-6*scaled {
			t.Fatalf("Quantile(%v) of fourfold values = %v, want %v", q, scaled, 4*got)
		}
	}
}

func TestWideRangesStayBounded(t *testing.T) {
	var h Histogram
	var c Counts
	for _, v := range []float64{1, 1e-8, 1e30, 5, 1e-3, 1e30} {
		h.Add(counted(v), 1)
		c.Add(v)
	}

	if len(h.weights) > MaxBuckets || c.len() > MaxCountBuckets {
		t.Fatalf("the window has %d and %d buckets, want at most %d and %d", len(h.weights), c.len(), MaxBuckets, MaxCountBuckets)
	}

	if math.Abs(h.Quantile(1)/1e30-1) > 1e-6 || c.Total() != 6 || math.Abs(h.Quantile(0)/1e-8-1) > 1e-6 {
		t.Errorf("max %v, total %v, min %v; want 1e30, 6, 1e-8", h.Quantile(1), c.Total(), h.Quantile(0))
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
		t.Errorf("Total() = %d, want 140001 after Merge, in four-byte buckets", c.Total())
	}
	if samples, _ := c.Above(1.5); samples != 1 {
		t.Errorf("Above(1.5) = %v samples, want 1", samples)
	}

	// The lowest buckets fold into one, beyond the range of two bytes.
	var low Counts
	for range 40_000 {
		low.Add(1)
		low.Add(1.1)
	}

	low.Add(1000)
	if got, _ := low.Above(100); low.Total() != 80_001 || got != 1 {
		t.Errorf("folded counts: total %d with %v above 100, want 80001 with 1", low.Total(), got)
	}
}

func TestCheckpoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{0, 1, 5000} {
		var c, read Counts
		for range n {
			c.Add(math.Exp(rng.NormFloat64()) * math.Floor(rng.Float64()*3))
		}

		data, _ := c.MarshalBinary()
		if err := read.UnmarshalBinary(data); err != nil {
			t.Fatalf("%d samples: %v", n, err)
		}

		for _, q := range []float64{0.1, 0.5, 0.99, 1} {
			if x, y := c.Quantile(q), read.Quantile(q); x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
				t.Errorf("%d samples: Quantile(%v) of the decoded counts = %v, want %v", n, q, y, x)
			}
		}

		for i := range data {
			broken := bytes.Clone(data)
			broken[i] ^= 0x40
			if err := new(Counts).UnmarshalBinary(broken); err == nil {
				t.Fatalf("UnmarshalBinary with byte %d altered succeeded, want an error", i)
			}

			if err := new(Counts).UnmarshalBinary(data[:i]); err == nil {
				t.Fatalf("UnmarshalBinary of %d of %d bytes succeeded, want an error", i, len(data))
			}
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	var c Counts
	for i := range 50 {
		c.Add(float64(i))
	}

	data, _ := c.MarshalBinary()
	f.Add(data[:len(data)-checksum.Size])
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is corrected, so that the checks after it are tested too.
		var c Counts
		if c.UnmarshalBinary(binary.LittleEndian.AppendUint32(body, crc32.ChecksumIEEE(body))) != nil || c.Total() == 0 {
			return
		}

		for name, q := range map[string]float64{"counts": c.Quantile(0.9), "a histogram": sum(&c).Quantile(0.9)} {
			if math.IsNaN(q) || q < 0 {
				t.Fatalf("Quantile(0.9) of %s = %v, want 0 or more", name, q)
			}
		}

		c.Add(1)
	})
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

func BenchmarkHistogramAdd(b *testing.B) {
	var c Counts
	for _, v := range draw("lognormal", 1440, rand.New(rand.NewPCG(1, 1))) {
		c.Add(v)
	}

	var h Histogram
	b.ReportAllocs()

	for b.Loop() {
		h.Reset()
		h.Add(&c, 1)
	}
}
