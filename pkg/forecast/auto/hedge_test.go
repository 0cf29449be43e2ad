// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast/baseline"
	"crane.io/crane/pkg/series"
)

func TestTrimmedMean(t *testing.T) {
	for name, c := range map[string]struct {
		votes []vote
		want  float32
	}{
		"one":                    {[]vote{{3, 1}}, 3},
		"a mean":                 {[]vote{{1, 0.5}, {3, 0.5}}, 2},
		"equal values are exact": {[]vote{{0.1, 0.2}, {0.1, 0.3}, {0.1, 0.5}}, 0.1},
		"a far one is cut off":   {[]vote{{1, 0.45}, {2, 0.45}, {1e30, 0.1}}, 1.6},
	} {
		if got := trimmedMean(c.votes, 0.25, 0.75); math.Abs(float64(got-c.want)) > 1e-6 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWeights(t *testing.T) {
	o := &outlook{experts: []expert{{use: forBoth, prior: 1}, {use: forBoth, prior: 1}}}
	tune := defaultTuning()
	near := func(name string, got []float64, want float64) {
		t.Helper()

		if math.Abs(got[1]-want) > 0.005 || math.Abs(got[0]+got[1]-1) > 1e-9 {
			t.Errorf("%s: weights %v, want %.3f for the second", name, got, want)
		}
	}

	near("no replays", o.weigh(tune, 0, [][]float64{{}, {}}), 0.5)
	near("both are perfect", o.weigh(tune, 0, [][]float64{{0, 0}, {0, 0}}), 0.5)
	near("plain is perfect", o.weigh(tune, 0, [][]float64{{0, 0}, {1, 1}}), 0)
	near("half the loss on every day", o.weigh(tune, 0, [][]float64{{2, 2, 2, 2}, {1, 1, 1, 1}}), 1)

	// However bad a single day of seven is, it moves the mean log by maxLoss/7.
	spoiledDay := o.weigh(tune, 0, [][]float64{{1, 1, 1, 1, 1, 1, 1}, {0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 1e9}})
	worse := o.weigh(tune, 0, [][]float64{{1, 1, 1, 1, 1, 1, 1}, {0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 10}})
	near("a single bad day is bounded", spoiledDay, worse[1])
}

// TestReplaysUseOlderRowsOnly checks that forecasts of a row do not depend on that row or on newer ones.
func TestReplaysUseOlderRowsOnly(t *testing.T) {
	m := fit(history(t, "weekday and weekend"))
	const target = 2
	forecasts := func(spoil bool) [][]profile {
		whole := *m.closed()
		whole.recent.cells = slices.Clone(whole.recent.cells)
		if spoil {
			for ago := 1; ago <= (target+1)*m.layout.perDay(); ago++ {
				whole.recent.cells[floorMod(whole.head-int64(ago), int64(len(whole.recent.cells)))].top *= 77
			}
		}

		return newOutlook(newDayRows(&whole, nil), 1).past
	}

	clean := forecasts(false)
	spoiled := forecasts(true)
	for e, x := range experts() {
		if !slices.Equal(clean[e][target], spoiled[e][target]) {
			t.Errorf("expert %q depends on what it must forecast, want the same forecast without it", x.name)
		}
	}
}

// TestOutages checks which days without load are left out.
func TestOutages(t *testing.T) {
	for name, c := range map[string]struct {
		idle, want []int // days ago
	}{
		"none":                 {nil, nil},
		"the newest day":       {[]int{0}, []int{0}},
		"three days":           {[]int{4, 5, 6}, []int{4, 5, 6}},
		"four days":            {[]int{4, 5, 6, 7}, nil},
		"two weekends":         {[]int{2, 3, 9, 10}, nil},
		"single days":          {[]int{0, 2, 5}, nil},
		"all days but a few":   {[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil},
		"the oldest two of 14": {[]int{12, 13}, []int{12, 13}},
	} {
		m := NewModel(time.Hour)
		for i := range 14 * 24 {
			v := 1.0
			if slices.Contains(c.idle, 13-i/24) {
				v = 0.001
			}

			m.Observe(monday.Add(time.Duration(i)*time.Hour), v)
		}

		rows := newDayRows(m.closed(), nil)
		for r := range rows.rows {
			if out := rows.coverage[r] == 0; out != slices.Contains(c.want, r) {
				t.Errorf("%s: day %d is left out: %v, want the days %v left out", name, r, out, c.want)
			}
		}
	}
}

// TestPlainExpert compares the first expert with the plain baseline at a step of a slot.
func TestPlainExpert(t *testing.T) {
	source := rand.New(rand.NewPCG(7, 7))
	h := series.Series{Start: monday, Step: 5 * time.Minute, Values: make([]float64, 14*288)}
	for i := range h.Values {
		h.Values[i] = 5 + 3*math.Sin(float64(i)/288*2*math.Pi) + source.Float64()
		if i%97 == 0 {
			h.Values[i] = math.NaN()
		}
	}

	want, err := baseline.Plain{}.Forecast(h, day)
	if err != nil {
		t.Fatal(err)
	}

	m := fit(h)
	o := newOutlook(newDayRows(m.closed(), nil), 1)

	p := o.days[plainExpert][0]
	for x := range 288 {
		for l, v := range want.Values[x] {
			if got := float64(p[l*288+x]) * m.scale; math.Abs(got-v) > 1e-3 {
				t.Fatalf("slot %d level %d: %v, want %v as of plain", x, l, got, v)
			}
		}
	}
}

// TestSortedAtoms compares weighted quantiles of packed atoms with those of plain values.
func TestSortedAtoms(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 19, 100, 5000} {
		packed := make(sortedAtoms, n)
		values := make([]float64, n)
		for i := range packed {
			v := float32(source.NormFloat64())
			values[i] = float64(v)
			packed[i] = pack(v, i%5, 0)
		}

		slices.Sort(values)
		packed = packed.sort(make(sortedAtoms, n))
		for i, a := range packed {
			if unpack(a) != values[i] {
				t.Fatalf("%d atoms: place %d holds %v, want %v", n, i, unpack(a), values[i])
			}
		}

		if v, ok := packed.median([]float32{1}, float32(n)); !ok || v != values[(n-1)/2] {
			t.Errorf("%d atoms: median %v, want %v", n, v, values[(n-1)/2])
		}

		out := make([]float32, 2)
		if n == 100 && (!packed.upper([]float32{1}, 100, []float32{0.1, 0.01}, out) || float64(out[0]) != values[89]) {
			t.Errorf("upper quantiles %v, want %v first", out, values[89])
		}
	}
}
