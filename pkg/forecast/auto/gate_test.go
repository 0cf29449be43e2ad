// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestElection(t *testing.T) {
	for name, c := range map[string]struct {
		values  []float32
		weights []float64
		trim    float32
		want    float64
	}{
		"one":                     {[]float32{3}, []float64{1}, 0.1, 3},
		"a mean":                  {[]float32{1, 3}, []float64{0.5, 0.5}, 0, 2},
		"equal values are exact":  {[]float32{0.1, 0.1, 0.1}, []float64{0.2, 0.3, 0.5}, 0.1, float64(float32(0.1))},
		"a far one is cut off":    {[]float32{1, 2, 1e30}, []float64{0.45, 0.45, 0.1}, 0.1, 1.5625},
		"the negligible is out":   {[]float32{5, 1e30}, []float64{1, 1e-6}, 0, 5},
		"the order is irrelevant": {[]float32{1e30, 2, 1}, []float64{0.1, 0.45, 0.45}, 0.1, 1.5625},
	} {
		e := newElection(c.weights)
		for i := range e.candidates {
			e.candidates[i].value = c.values[e.candidates[i].index]
		}
		if got := float64(e.elect(c.trim)); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestScores(t *testing.T) {
	s := newScores(2, 4, 1000)
	if w := s.weights(10); w[0] != 0.5 || w[1] != 0.5 {
		t.Errorf("nothing is known: %v", w)
	}
	copy(s.losses[0], []float64{1, 1, 1, 1})
	copy(s.losses[1], []float64{2, 2, 2, 2})
	if w := s.weights(10); w[1] > 0.001 {
		t.Errorf("half as good on every row: %v", w)
	}
	// A single day on which both failed says little.
	copy(s.losses[0], []float64{0, 0, 100, 0})
	copy(s.losses[1], []float64{0, 0, 150, 0})
	if w := s.weights(10); w[1] < 0.4 {
		t.Errorf("one row decides: %v", w)
	}
	copy(s.losses[0], []float64{0, 0, 0, 0})
	if w := s.weights(10); w[0] != 1 {
		t.Errorf("one is perfect: %v", w)
	}
}

// TestReplaysSeeOlderRowsOnly: whatever a row and those newer than it hold, what is forecast of it stays the same.
func TestReplaysSeeOlderRowsOnly(t *testing.T) {
	m := fit(history(t, "weekday and weekend"))
	tune := defaultTuning()
	const target = 2
	forecasts := func(spoil bool) [][]float32 {
		g := newGrid(m, 96, m.recent.count)
		if spoil {
			for k := range target + 1 {
				for s := range g.rows[k].units {
					u := &g.rows[k].units[s]
					for i := range u.mid {
						u.mid[i] *= 77
					}
					u.high, u.top = 77*u.high, 77*u.top
				}
			}
		}
		b := newBanks(m, g, tune)
		var out [][]float32
		for _, k := range middleKernels() {
			part := make([]float32, g.slots)
			b.middle(k, target, 0, true, part)
			out = append(out, part)
		}
		for _, k := range tailKernels() {
			part := make([]float32, g.slots*3)
			b.upper(k, target, 0, gateAbove(), part)
			out = append(out, part)
		}
		return out
	}
	clean, spoiled := forecasts(false), forecasts(true)
	for c := range clean {
		if !slices.Equal(clean[c], spoiled[c]) {
			t.Errorf("candidate %d sees what it must not", c)
		}
	}
}

// TestSortedAtoms compares weighted quantiles of packed atoms with those of plain values.
func TestSortedAtoms(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 19, 100, 5000} {
		atoms := make(sortedAtoms, n)
		values := make([]float64, n)
		for i := range atoms {
			v := float32(source.NormFloat64())
			values[i] = float64(v)
			atoms[i] = pack(v, i%5, 0)
		}
		slices.Sort(values)
		atoms = atoms.sort(make(sortedAtoms, n))
		for i, a := range atoms {
			if unpack(a) != values[i] {
				t.Fatalf("%d atoms: place %d holds %v, want %v", n, i, unpack(a), values[i])
			}
		}
		if v, ok := atoms.median([]float32{1}, float32(n)); !ok || v != values[(n-1)/2] {
			t.Errorf("%d atoms: median %v, want %v", n, v, values[(n-1)/2])
		}
		count := 0
		for i, list := range atoms.split(5) {
			count += len(list)
			for j, a := range list {
				if listOf(a) != i || j > 0 && unpack(list[j-1]) > unpack(a) {
					t.Fatalf("%d atoms: list %d is wrong at %d", n, i, j)
				}
			}
		}
		if count != n {
			t.Errorf("%d of %d atoms dealt out", count, n)
		}
		out := make([]float32, 2)
		if n == 100 && (!atoms.upper([]float32{1}, 100, []float32{0.1, 0.01}, out) || float64(out[0]) != values[89]) {
			t.Errorf("upper quantiles %v, want %v first", out, values[89])
		}
	}
}

func TestRegime(t *testing.T) {
	level := func(hours int) func(i int) float64 {
		return func(i int) float64 {
			if i >= (14*24-hours)*4 {
				return 10
			}
			return 1
		}
	}
	for name, c := range map[string]struct {
		value func(i int) float64
		want  int
	}{
		"constant":             {func(int) float64 { return 1 }, 1344},
		"up two days ago":      {level(48), 192},
		"up just now":          {level(6), 1344},
		"down two days ago":    {func(i int) float64 { return 11 - level(48)(i) }, 1344},
		"up twice":             {func(i int) float64 { return level(48)(i) * level(144)(i) }, 1344},
		"a daily cycle":        {func(i int) float64 { return 2 + math.Sin(float64(i)/96*2*math.Pi) }, 1344},
		"a holiday, and after": {func(i int) float64 { return 1 + 9*math.Abs(float64(i/96%14-7))/(1+math.Abs(float64(i/96%14-7))) }, 1344},
		"a few low days, back": {func(i int) float64 {
			if d := i / 96; d >= 6 && d <= 8 {
				return 1
			}
			return 10
		}, 1344},
	} {
		m := NewModel(15 * time.Minute)
		for i := range 14*96 + 1 {
			m.Observe(monday.Add(time.Duration(i)*15*time.Minute), c.value(i))
		}
		if got := m.regime(defaultTuning()); got < c.want-8 || got > c.want+8 {
			t.Errorf("%s: %d units, want about %d", name, got, c.want)
		}
	}
}
