// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"cmp"
	"slices"
	"time"
)

// today adjusts the forecast of a day that differs from its weekday, such as an unknown holiday. If the hours before
// the origin are far from their forecast, compared with the replays, and near to the same hours of days of another
// kind, the rest of the day is forecast to follow those days.
type today struct {
	weight float32 // of what those days say, from 0 (nothing is unusual) to 1
	alike  []alike
}

// alike is a row whose hours resemble those before the origin.
type alike struct {
	row      int
	distance float64 // of those hours
}

const (
	// todayWindow is how long the hours before the origin are looked at.
	todayWindow = 6 * time.Hour
	// A similar day is followed fully for todayHolds and then less and less until todayEnds, because the end of the
	// exceptional period is unknown.
	todayHolds, todayEnds = 8 * time.Hour, 16 * time.Hour
	// mostAlike is the maximum number of similar days.
	mostAlike = 4
)

// newToday compares the newest hours with what was forecast of them; medians are those of the replayed rows.
func (b *banks) newToday(medians [][]float32, unit time.Duration) today {
	g := b.grid
	window := int(todayWindow / unit)
	if len(medians) < 3 || window < 3 || window > g.slots/2 || g.slots != g.perDay {
		return today{}
	}
	first := g.slots - window
	var errors []float64
	for k, m := range medians {
		if e, ok := g.hours(k, first, func(s int) float32 { return m[s] }); ok {
			errors = append(errors, e)
		} else if k == 0 {
			return today{}
		}
	}
	surprise := errors[0]
	usual := slices.Sorted(slices.Values(errors[1:]))
	if len(usual) < 2 {
		return today{}
	}
	var found []alike
	for k := 1; k < len(g.rows); k++ {
		d, ok := g.hours(0, first, func(s int) float32 { return g.rows[k].units[s].mid[g.sub/2] })
		if ok && g.rows[k-1].full() {
			found = append(found, alike{row: k - 1, distance: d})
		}
	}
	slices.SortFunc(found, func(a, b alike) int { return cmp.Compare(a.distance, b.distance) })
	found = found[:min(len(found), mostAlike)]
	if len(found) < 2 {
		return today{}
	}
	nearest := found[0].distance
	// What is much farther than the nearest is not alike; but one day alone is no evidence.
	for len(found) > 2 && found[len(found)-1].distance > 3*nearest+surprise/20 {
		found = found[:len(found)-1]
	}
	t := b.tuning
	strange := ramp(surprise, t.surprise*usual[len(usual)/2], 2*t.surprise*usual[len(usual)/2])
	known := 1 - ramp(nearest, t.recognised*surprise, 2*t.recognised*surprise)
	return today{weight: float32(strange * known), alike: found}
}

// ramp is 0 below from, 1 above to, and rises in between.
func ramp(v, from, to float64) float64 {
	switch {
	case v <= from:
		return 0
	case v >= to:
		return 1
	}
	return (v - from) / (to - from)
}

// hours is the mean distance of a row's slots from the first on to some values; false where half of them are gaps.
func (g *grid) hours(k, first int, value func(slot int) float32) (float64, bool) {
	sum, n := float32(0), 0
	for s := first; s < g.slots; s++ {
		d := g.rows[k].units[s].mid[g.sub/2] - value(s)
		if isNaN(d) {
			continue
		}
		sum += max(d, -d)
		n++
	}
	if n == 0 {
		return 0, false
	}
	return float64(sum) / float64(n), 2*n >= g.slots-first
}

// agreement returns, from 0 to 1, how much closer the values are to each other than their median is to another value.
// Days that are similar until midnight may differ after it.
func (f few) agreement(middle, other float32) float32 {
	spread := float32(0)
	for _, x := range f {
		d := x.value - middle
		spread += max(d, -d)
	}
	away := max(middle-other, other-middle) * float32(len(f))
	if !(away > 0) {
		return 0
	}
	return 1 - float32(ramp(float64(spread/away), 0.1, 0.25))
}

// follow moves the forecast of the first season towards how the days that are alike went on.
func (o *gate) follow(out seasonForecast) {
	g := o.banks.grid
	if o.today.weight == 0 {
		return
	}
	middle := make([]float32, len(out.middle))
	median := make([]float32, g.slots)
	agree := make([]float32, g.slots)
	some := make(few, 0, mostAlike)
	for i := range middle {
		some = some[:0]
		for _, a := range o.today.alike {
			some = some.add(g.rows[a.row].units[i/g.sub].mid[i%g.sub], 1)
		}
		middle[i] = some.median(out.middle[i])
		if i%g.sub == g.sub/2 {
			median[i/g.sub] = middle[i]
			agree[i/g.sub] = some.agreement(middle[i], out.middle[i])
		}
	}
	upper := make([]float32, len(out.upper))
	o.residuals.upper(-1, false, median, tailsAbove(o.margin), upper)
	// Where it is not sure that the day is another one, what the weekday may need stays covered.
	lower := float32(ramp(float64(o.today.weight), 0.8, 1))
	for s := range g.slots {
		at := time.Duration(s) * o.unit
		fade := agree[s] * float32(1-ramp(at.Hours(), todayHolds.Hours(), todayEnds.Hours()))
		for i := s * g.sub; i < (s+1)*g.sub; i++ {
			out.middle[i] += o.today.weight * fade * (middle[i] - out.middle[i])
		}
		for i := s * tails; i < (s+1)*tails; i++ {
			if upper[i] > out.upper[i] {
				out.upper[i] += o.today.weight * fade * (upper[i] - out.upper[i])
			} else {
				out.upper[i] += lower * fade * (upper[i] - out.upper[i])
			}
		}
	}
}
