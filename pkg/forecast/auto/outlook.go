// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"

	"crane.io/crane/pkg/forecast"
)

// replayLevels and allLevels are the levels of replayed forecasts and of those of the future; the first is the median.
const (
	replayLevels = 2
	allLevels    = forecast.NumLevels
)

// aboveReplayed and aboveAll are the shares above the upper levels, descending.
func aboveReplayed() []float32 { return []float32{0.05} }
func aboveAll() []float32      { return []float32{0.25, 0.1, 0.05, 0.01} }

// profile is a forecast of a day: the quantiles of each slot at some levels, level by level. Experts of the median have
// that level alone; for the upper quantiles the median is there, too.
type profile []float32

func (p profile) level(l, slots int) []float32 { return p[l*slots : (l+1)*slots] }

// outlook holds the forecasts of all experts: of the future, and of the newest days from the days before each.
type outlook struct {
	h       *dayRows
	experts []expert
	days    [][]profile // by expert, then by days ahead
	past    [][]profile // by expert, then by replay: past[e][i] is of row i, from origin i+1
	// flat are constant forecasts from all rows before an origin: of the replays, and flatFuture of the future.
	flat       []profile
	flatFuture profile

	space workspace
}

// maxReplays is the number of days that are replayed: each weekday once.
const maxReplays = 7

// replays returns how many of the newest rows can be replayed; each needs an older full row.
func (h *dayRows) replays() int {
	for r := h.rows - 1; r > 0; r-- {
		if h.full(r) {
			return min(maxReplays, r)
		}
	}

	return 0
}

// newOutlook forecasts a number of days, and replays.
func newOutlook(h *dayRows, ahead int) *outlook {
	o := &outlook{h: h, experts: experts()}
	replays := h.replays()
	o.days = make([][]profile, len(o.experts))
	o.past = make([][]profile, len(o.experts))

	reach := 0
	for e, x := range o.experts {
		days := 1
		if x.byDay {
			days = min(ahead, 7)
		}

		future := allLevels
		past := replayLevels
		if x.use == forMedian {
			future = 1
			past = 1
		}

		o.days[e] = profiles(days, future*h.slots)
		o.past[e] = profiles(replays, past*h.slots)
		reach = max(reach, o.windows(x).half)
	}

	// The buffers hold the largest pool and its widest window, so that the experts share them without growing.
	size := h.rows * (h.slots + 2*reach) * h.kinds()
	o.space.pool = make(sortedAtoms, 0, size)
	o.space.scratch = make(sortedAtoms, size)
	widest := h.rows * (2*reach + 1)

	o.space.list = list{all: make(sortedAtoms, 0, widest*h.kinds()), medians: make(sortedAtoms, 0, widest)}
	for t := plainValues; t <= shiftedHours; t++ {
		o.forecastPool(t)
	}

	o.forecastNewest()
	o.forecastFlat(replays)
	o.fillGaps()

	return o
}

func profiles(count, size int) []profile {
	store := make(profile, count*size)
	out := make([]profile, count)
	for i := range out {
		out[i] = store[i*size : (i+1)*size]
	}

	return out
}

// windows returns the windows of an expert.
func (o *outlook) windows(x expert) windows {
	minutes := int(o.h.slotMinutes())
	return windows{half: min(x.half/minutes, o.h.slots/2), every: max(1, x.every/minutes)}
}

// forecastPool forecasts with the experts of a transform.
func (o *outlook) forecastPool(t transform) {
	var order []windows
	reach := 0
	for _, x := range o.experts {
		if x.newest == 0 && x.transform == t && !slices.Contains(order, o.windows(x)) {
			order = append(order, o.windows(x))
			reach = max(reach, o.windows(x).half)
		}
	}

	pool := o.h.pool(t, reach, &o.space)

	// Experts with the same windows share the lists, which are the costly part.
	for _, w := range order {
		tasks := o.space.tasks[:0]
		upper := false
		for e, x := range o.experts {
			if x.newest == 0 && x.transform == t && o.windows(x) == w {
				tasks = o.appendTasks(tasks, e)
				upper = upper || x.use&forUpper != 0
			}
		}

		o.space.tasks = tasks
		w.visit(o.h, &o.space, pool, reach, upper, func(place int, l *list) {
			for i := range tasks {
				tasks[i].run(l, o.h, place*w.every, min(o.h.slots, (place+1)*w.every))
			}
		})
	}
}

// task is one forecast of one expert.
type task struct {
	weights   [maxTags]float32 // by tag, with the share of the atom
	rows      [maxRows * 2]float32
	from      int // the first row that is known
	transform transform
	current   float32
	above     []float32 // none for the median alone
	out       profile
}

// appendTasks appends all forecasts of an expert.
func (o *outlook) appendTasks(tasks []task, e int) []task {
	for ahead, p := range o.days[e] {
		tasks = append(tasks, o.task(e, 0, ahead, aboveAll(), p))
	}

	for i, p := range o.past[e] {
		tasks = append(tasks, o.task(e, i+1, 0, aboveReplayed(), p))
	}

	return tasks
}

func (o *outlook) task(e, origin, ahead int, above []float32, out profile) task {
	h := o.h
	x := o.experts[e]
	t := task{
		from:      origin,
		transform: x.transform,
		above:     above,
		out:       out,
		current:   float32(h.current(x.transform, origin)),
	}

	if x.use == forMedian {
		t.above = nil
	}

	for r := origin; r < h.rows; r++ {
		if !h.usable(x.transform, origin, r) {
			continue
		}

		w := float32(x.weigh(h, origin, r, ahead))
		for side := range 2 {
			if side == 1 && r == origin {
				continue // those atoms are later than the origin
			}

			t.rows[r*2+side] = w
			for k, share := range h.shares {
				t.weights[(r*2+side)*atomCount+k] = w * share
			}
		}
	}

	return t
}

// run sets the forecast of the slots of a window.
func (t *task) run(l *list, h *dayRows, from, to int) {
	var store [allLevels]float32
	q := store[:len(t.above)+1]

	// Only rows that are known at the origin have weights in this task.
	var total float32
	for i := t.from * 2; i < h.rows*2; i++ {
		total += t.rows[i] * float32(l.counts[i])
	}

	v, ok := l.medians.median(t.weights[:], total*h.shares[median])
	if !ok {
		fill(q, nan())
	} else {
		q[0] = float32(v)
		if len(t.above) > 0 {
			l.all.upper(t.weights[:], total, t.above, q[1:])
		}
	}

	for level, v := range q {
		switch t.transform {
		case scaledDay, scaledHours:
			v *= t.current
		case shiftedHours:
			v += t.current
			if v < 0 {
				v = 0
			}
		}

		fill(t.out[level*h.slots+from:level*h.slots+to], v)
	}
}

// forecastNewest forecasts with the experts that use the newest minutes alone.
func (o *outlook) forecastNewest() {
	for e, x := range o.experts {
		if x.newest == 0 {
			continue
		}

		n := max(1, x.newest/int(o.h.slotMinutes()))
		for _, p := range o.days[e] {
			o.newest(0, n, aboveAll(), p)
		}

		for i, p := range o.past[e] {
			o.newest(i+1, n, aboveReplayed(), p)
		}
	}
}

// forecastFlat sets flat and flatFuture.
func (o *outlook) forecastFlat(replays int) {
	h := o.h
	pooled := o.space.pool[:0]
	for r := range h.rows {
		for _, a := range h.row(r) {
			if a.empty() {
				continue
			}

			for k, v := range a[:h.kinds()] {
				pooled = append(pooled, pack(v, 0, r*atomCount+k))
			}
		}
	}

	pooled = pooled.sort(o.space.scratch)
	o.flatFuture = profiles(1, allLevels*h.slots)[0]
	o.flat = profiles(replays, replayLevels*h.slots)
	for origin := range replays + 1 {
		out := o.flatFuture
		above := aboveAll()
		if origin > 0 {
			out = o.flat[origin-1]
			above = aboveReplayed()
		}

		var medians, weights [maxRows * atomCount]float32
		total := float32(0)
		for r := origin; r < h.rows; r++ {
			total += float32(math.Round(h.coverage[r] * float64(h.slots)))
			medians[r*atomCount+median] = 1
			copy(weights[r*atomCount:], h.shares[:])
		}

		var q [allLevels]float32
		v, ok := pooled.median(medians[:], total)
		if !ok {
			continue // no older samples: the row is not replayed
		}

		q[0] = float32(v)
		pooled.upper(weights[:], total, above, q[1:])

		for level := range len(above) + 1 {
			fill(out.level(level, h.slots), q[level])
		}
	}
}

// newest sets a forecast to the quantiles of the n slots before an origin.
func (o *outlook) newest(origin, n int, above []float32, out profile) {
	h := o.h
	above = above[:len(out)/h.slots-1]

	pooled := o.space.pool[:0]
	medians := float32(0)
	for i := range n {
		r := origin + i/h.slots
		x := h.slots - 1 - i%h.slots

		if r >= h.rows {
			break
		}

		a := &h.atoms[r*h.slots+x]
		if a.empty() {
			continue
		}

		medians++
		for k, v := range a[:h.kinds()] {
			pooled = append(pooled, pack(v, 0, k))
		}
	}

	var store [allLevels]float32
	q := store[:len(above)+1]
	pooled = pooled.sort(o.space.scratch)

	// Without samples the forecast is a gap, which fillGaps replaces.
	if v, ok := pooled.median([]float32{1, 0, 0}, medians); ok {
		q[0] = float32(v)
		if len(above) > 0 {
			pooled.upper(h.shares[:], medians, above, q[1:])
		}
	} else {
		fill(q, nan())
	}

	for level, v := range q {
		fill(out.level(level, h.slots), v)
	}
}

func (h *dayRows) slotMinutes() float64 { return 24 * 60 / float64(h.slots) }

// fillGaps replaces what an expert cannot forecast by the forecast of plain, and what plain cannot by that of all rows.
func (o *outlook) fillGaps() {
	for e := range o.experts {
		for _, p := range o.days[e] {
			p.fillFrom(o.days[plainExpert][0])
			p.fillFrom(o.flatFuture)
		}

		for i, p := range o.past[e] {
			p.fillFrom(o.past[plainExpert][i])
			p.fillFrom(o.flat[i])
		}
	}
}

// fillFrom replaces NaN by the values of another profile.
func (p profile) fillFrom(other profile) {
	for i, v := range p {
		if isNaN(v) {
			p[i] = other[i]
		}
	}
}

func fill(out []float32, v float32) {
	for i := range out {
		out[i] = v
	}
}

// absolute returns the sum of the absolute errors of a median forecast of the slots of a row.
func (h *dayRows) absolute(row int, forecast []float32, from, to int) float64 {
	sum := float32(0)
	for x := from; x < to; x++ {
		a := &h.atoms[row*h.slots+x]
		// A gap is NaN and adds nothing.
		if d := a[median] - forecast[x]; d > 0 {
			sum += d
		} else if d < 0 {
			sum -= d
		}
	}

	return float64(sum)
}

// pinball returns the sum of the pinball losses of a forecast of an upper quantile of the slots of a row.
func (h *dayRows) pinball(row int, forecast []float32, above float32, from, to int) float64 {
	sum := float32(0)
	for x := from; x < to; x++ {
		a := &h.atoms[row*h.slots+x]
		if a.empty() {
			continue
		}

		for k, share := range h.shares {
			if share > 0 {
				d := a[k] - forecast[x]
				sum += share * max((1-above)*d, -above*d)
			}
		}
	}

	return float64(sum)
}
