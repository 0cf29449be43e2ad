// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"slices"
)

// grid is the history cut into seasons that end at the origin: row 0 is the newest season, row k ends k seasons before
// the origin. A row has one unit per slot. The row that is to be forecast is called target -1; replaying an earlier
// origin means to forecast row i from the rows after it (i+1, i+2, …), which are older.
type grid struct {
	sub    int     // sub-slots of a unit
	shares shares  // what the atoms of a unit stand for
	slots  int     // units of a season
	perDay int     // units of a day
	rows   []row   // newest first
	flat   float64 // median of all units, what an empty slot falls back to
	max    float64 // largest atom
	known  bool    // whether there is any sample
	likes  int     // how many rows ago the like row is: a week, in seasons; 0 where a week is no whole number of them
}

type row struct {
	units    []unit  // one per slot, in order of time
	coverage float64 // share of the slots that have samples
	level    float64 // mean of the units' medians; 0 where there are none
}

// newGrid cuts a number of the newest units of a model into seasons of a number of slots. The oldest row may be partly empty.
func newGrid(m *Model, slots, newest int) *grid {
	g := &grid{sub: m.layout.sub, shares: sharesFor(m.layout, m.step), slots: slots, perDay: m.layout.perDay()}
	count := min(maxRows, (newest+slots-1)/slots)
	all := make([]unit, count*slots)
	g.rows = make([]row, count)
	mids := make([]float32, 0, m.recent.count)
	for k := range g.rows {
		r := row{units: all[k*slots : (k+1)*slots]}
		for s := range r.units {
			u := emptyUnit()
			if ago := (k+1)*slots - s; ago <= newest {
				u = m.at(ago)
			}
			r.units[s] = u
			if u.empty() {
				continue
			}
			mids = append(mids, u.middle(g.sub))
			g.max = max(g.max, float64(u.top))
		}
		r.measure(g.sub)
		g.rows[k] = r
	}
	if len(mids) > 0 {
		slices.Sort(mids)
		g.flat = float64(mids[len(mids)/2])
		g.known = true
	}
	if perWeek := 7 * m.layout.perDay(); perWeek%slots == 0 {
		g.likes = perWeek / slots
	}
	return g
}

// measure sets the coverage and the level of a row.
func (r *row) measure(sub int) {
	sum, n := 0.0, 0
	for s := range r.units {
		if u := &r.units[s]; !u.empty() {
			sum += float64(u.middle(sub))
			n++
		}
	}
	r.coverage = float64(n) / float64(len(r.units))
	if n > 0 {
		r.level = sum / float64(n)
	}
}

// middle returns the mean of the unit's medians that there are; it must not be empty.
func (u *unit) middle(sub int) float32 {
	var sum float32
	n := 0
	for i := range sub {
		if v := u.mid[i]; !isNaN(v) {
			sum += v
			n++
		}
	}
	return sum / float32(n)
}

// turn says which sub-slot stands for a unit where one is enough. They take turns: what happens at a fixed minute of the
// hour must be seen as often as it happens.
func (g *grid) turn(row, slot int) int { return (row + slot) % g.sub }

// full reports whether a row has enough samples to be replayed.
func (r row) full() bool { return r.coverage >= 0.5 }

// fullRows returns how many rows are full.
func (g *grid) fullRows() int {
	n := 0
	for _, r := range g.rows {
		if r.full() {
			n++
		}
	}
	return n
}

// replays returns how many of the newest rows can be replayed: each needs an older full row to be forecast from.
func (g *grid) replays(limit int) int {
	for k := len(g.rows) - 1; k > 0; k-- {
		if g.rows[k].full() {
			return min(limit, k)
		}
	}
	return 0
}

// distances returns the relative distance of each pair of rows: the mean absolute difference of their medians over
// their mean. Pairs with a row that is not full have distance -1.
func (g *grid) distances() [][]float64 {
	n := len(g.rows)
	out := make([][]float64, n)
	cells := make([]float64, n*n)
	for i := range out {
		out[i] = cells[i*n : (i+1)*n]
	}
	mid := g.sub / 2
	profile := make([]float32, g.slots)
	for i := range n {
		for s := range profile {
			profile[s] = g.rows[i].units[s].mid[mid]
		}
		for j := i + 1; j < n; j++ {
			d := -1.0
			if g.rows[i].full() {
				d = g.distanceTo(profile, j)
			}
			out[i][j], out[j][i] = d, d
		}
	}
	return out
}

// distanceTo returns the relative distance of a row to a profile, which has a value for each slot; -1 where the row is
// not full.
func (g *grid) distanceTo(profile []float32, j int) float64 {
	if !g.rows[j].full() {
		return -1
	}
	var difference, sum float32
	mid := g.sub / 2
	units := g.rows[j].units
	for s, x := range profile {
		y := units[s].mid[mid]
		if d := x - y; d > 0 {
			difference += d
			sum += x + y
		} else if d <= 0 {
			difference -= d
			sum += x + y
		}
	}
	if !(sum > 0) {
		return 0
	}
	return 2 * float64(difference/sum)
}
