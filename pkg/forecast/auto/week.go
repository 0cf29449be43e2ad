// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "slices"

// weeks are the rows of the same weekday, up to five of them: what the weekly profile is learnt from. Few values are
// looked at for each place of the season, so they are gathered and sorted where they are needed.
type weeks struct {
	grid    *grid
	rows    []row     // the rows of the grid, and those of the older history after them
	levels  []float64 // mean level of the week before each row and the row itself
	blocks  [][blockAtoms]float32
	per     int // units of a block
	perWeek int // rows of a week; 0 where a week is no whole number of them
}

// mostWeeks is how many rows of one weekday there are at most.
const mostWeeks = (historyDays + olderDays) / 7

// newWeeks takes the summary of the blocks of the grid's rows.
func newWeeks(m *Model, g *grid, per int, summary [][blockAtoms]float32) *weeks {
	w := &weeks{grid: g, rows: g.rows, blocks: summary, per: per, perWeek: g.likes}
	if w.perWeek == 0 {
		return w
	}
	if m.long() && g.slots == g.perDay && len(g.rows) == historyDays {
		w.addOlder(m)
	}
	w.levels = make([]float64, len(w.rows))
	for k := range w.rows {
		w.levels[k] = meanLevel(w.rows[k:min(len(w.rows), k+w.perWeek)])
	}
	return w
}

func (w *weeks) addOlder(m *Model) {
	g := w.grid
	w.rows = append(make([]row, 0, historyDays+olderDays), g.rows...)
	count := g.slots / w.per
	w.blocks = append(make([][blockAtoms]float32, 0, (historyDays+olderDays)*count), w.blocks...)
	few := make(sortedAtoms, 0, w.per*unitAtoms)
	units := make([]unit, olderDays*g.slots)
	for k := historyDays; k < historyDays+olderDays; k++ {
		r := row{units: units[(k-historyDays)*g.slots:][:g.slots]}
		for s := range r.units {
			r.units[s] = m.oldUnit(m.head - int64((k+1)*g.slots-s))
		}
		r.measure(g.sub)
		w.rows = append(w.rows, r)
		for i := range count {
			w.blocks = append(w.blocks, blockOf(g, r.units[i*w.per:(i+1)*w.per], few))
		}
	}
}

// long reports whether there are rows beyond those of the grid.
func (w *weeks) long() bool { return len(w.rows) > len(w.grid.rows) }

// meanLevel is the mean level of full rows, 0 where there are none.
func meanLevel(rows []row) float64 {
	sum, n := 0.0, 0
	for i := range rows {
		if rows[i].full() {
			sum += rows[i].level
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// same returns the full rows of the weekday of a target that are older than it, newest first.
func (w *weeks) same(target, ahead int, out []int) []int {
	out = out[:0]
	if w.perWeek == 0 {
		return out
	}
	for k := target - ahead + w.perWeek; k < len(w.rows); k += w.perWeek {
		if k > target && w.rows[k].full() {
			out = append(out, k)
		}
	}
	return out
}

// scales brings rows to the level of the week before a target, where scaled is set.
func (w *weeks) scales(target int, rows []int, scaled bool) [mostWeeks]float32 {
	var out [mostWeeks]float32
	for i, k := range rows {
		out[i] = 1
		if now := w.levels[target+1]; scaled && now > 0 && w.levels[k] > 0 {
			out[i] = float32(now / w.levels[k])
		}
	}
	return out
}

// middle is the median over the rows of the weekday, a row of a week ago weighing more than one of five.
func (w *weeks) middle(k kernel, target, ahead int, coarse bool, out []float32) {
	var store [mostWeeks]int
	rows := w.same(target, ahead, store[:])
	if len(rows) == 0 {
		fill(out, float32(w.grid.flat))
		return
	}
	scales := w.scales(target, rows, k.scaled)
	sub := w.grid.sub
	first, count := 0, sub
	if coarse {
		first, count = sub/2, 1
	}
	var some few
	for i := range out {
		slot, at := i/count, first+i%count
		some = some[:0]
		weight := float32(1)
		for n, row := range rows {
			u := &w.rows[row].units[slot]
			if k.drawn {
				for _, v := range u.mid[:sub] {
					some = some.add(v*scales[n], weight)
				}
			} else {
				some = some.add(u.mid[at]*scales[n], weight)
			}
			weight *= weekDecay
		}
		out[i] = some.median(float32(w.grid.flat))
	}
	if k.drawn {
		draw(out, count)
	}
}

// weekDecay is what a week weighs relative to the one after it.
const weekDecay = 0.85

// few are some weighted values.
type few []weighted

type weighted struct{ value, weight float32 }

func (f few) add(v, weight float32) few {
	if isNaN(v) {
		return f
	}
	f = append(f, weighted{v, weight})
	for i := len(f) - 1; i > 0 && f[i-1].value > f[i].value; i-- {
		f[i-1], f[i] = f[i], f[i-1]
	}
	return f
}

func (f few) total() float32 {
	var sum float32
	for _, x := range f {
		sum += x.weight
	}
	return sum
}

// median is the weighted median, or the mean of two where the weight is split between them; otherwise where there is
// nothing.
func (f few) median(otherwise float32) float32 {
	half := f.total() / 2
	var sum float32
	for i, x := range f {
		sum += x.weight
		switch {
		case sum > half*(1+1e-5):
			return x.value
		case sum >= half*(1-1e-5) && i+1 < len(f):
			return x.value + (f[i+1].value-x.value)/2
		}
	}
	return otherwise
}

// upper fills dst with quantiles, given as the shares above them; false where there is nothing.
func (f few) upper(above, dst []float32) bool {
	total := f.total()
	if !(total > 0) {
		return false
	}
	next := len(above) - 1
	var sum float32
	for _, x := range slices.Backward(f) {
		for sum += x.weight; next >= 0 && sum > above[next]*total; next-- {
			dst[next] = x.value
		}
	}
	for ; next >= 0; next-- {
		dst[next] = f[0].value
	}
	return true
}

// upper forecasts quantiles from the blocks of the weekday's rows: out has len(above) values for each slot.
func (w *weeks) upper(k kernel, target, ahead int, above, out []float32) {
	var store [mostWeeks]int
	rows := w.same(target, ahead, store[:])
	scales := w.scales(target, rows, k.scaled)
	n, count := len(above), w.grid.slots/w.per
	shares := blockShares()
	some := make(few, 0, mostWeeks*blockAtoms)
	for b := range count {
		some = some[:0]
		weight := float32(1)
		for i, row := range rows {
			for a, v := range w.blocks[row*count+b] {
				some = some.add(v*scales[i], weight*shares[a])
			}
			weight *= weekDecay
		}
		part := out[b*w.per*n : (b+1)*w.per*n]
		if !some.upper(above, part[:n]) {
			fill(part[:n], float32(w.grid.flat))
		}
		repeat(part, n)
	}
}
