// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
)

// transform is the way in which the atoms of a row are normalized before they are pooled with those of other rows.
type transform int

const (
	plainValues  transform = iota
	scaledDay              // divided by the level of the row
	scaledHours            // divided by the level before the row
	shiftedHours           // less the level before the row
)

// clip returns the range of the ratio of levels within which a scaled row is used.
func (t transform) clip() (float64, float64) {
	if t == scaledDay {
		return 0.2, 5
	}

	return 0.25, 4
}

// reference returns what the values of a row are normalized by; NaN or, for ratios, 0 if the row cannot be used.
func (h *dayRows) reference(t transform, row int) float64 {
	switch t {
	case scaledDay:
		return h.level[row]
	case scaledHours, shiftedHours:
		if row+1 < h.rows {
			return h.late[row+1]
		}

		return math.NaN()
	}

	return 1
}

// current returns what normalized values are brought to at an origin.
func (h *dayRows) current(t transform, origin int) float64 {
	switch t {
	case scaledDay:
		return h.level[origin]
	case scaledHours, shiftedHours:
		return h.late[origin]
	}

	return 1
}

// usable reports whether a row, normalized, can be used at an origin.
func (h *dayRows) usable(t transform, origin, row int) bool {
	reference := h.reference(t, row)
	current := h.current(t, origin)
	switch t {
	case plainValues:
		return true
	case shiftedHours:
		return !math.IsNaN(reference) && !math.IsNaN(current)
	}

	low, high := t.clip()
	ratio := current / reference
	return ratio >= low && ratio <= high
}

// A tag is (row*2 + ahead)*atomCount + atom, where row is the row of the window that an atom is in, and ahead marks atoms
// of the next newer row, at the end of a window: they are unknown at the origin that ends with that window's row.
const maxTags = maxRows * 2 * atomCount

// pool returns the normalized atoms of all rows in ascending order. An atom that is within reach of the end of its row
// occurs in the windows of two rows. Lists of the result are positions in the window's row, plus reach.
func (h *dayRows) pool(t transform, reach int, space *workspace) sortedAtoms {
	store := space.pool[:0]
	kinds := h.kinds()
	for r := range h.rows {
		reference := h.reference(t, r)
		scale := float32(1)
		shift := float32(0)
		switch t {
		case shiftedHours:
			shift = float32(reference)
		case scaledDay, scaledHours:
			scale = float32(1 / reference)
		}

		// A row that cannot be normalized is left out.
		if isNaN(scale) || isNaN(shift) || math.IsInf(float64(scale), 0) {
			continue
		}

		// Beyond the ends of a row its windows have the atoms of the neighbors: the older row before it, the newer one after it.
		for x := -reach; x < h.slots+reach; x++ {
			index := (r * h.slots) + x
			ahead := 0
			switch {
			case x < 0 && r+1 < h.rows:
				index += 2 * h.slots
			case x >= h.slots && r > 0:
				index -= 2 * h.slots
				ahead = 1
			case x < 0 || x >= h.slots:
				continue
			}

			a := &h.atoms[index]
			if a.empty() {
				continue
			}

			tag := (r*2 + ahead) * atomCount
			for k, v := range a[:kinds] {
				store = append(store, pack(v*scale-shift, x+reach, tag+k))
			}
		}
	}

	return store.sort(space.scratch)
}

// windows deals a pool out to windows of the time of day: one for each run of every slots, which holds the atoms within
// half of the middle of the run.
type windows struct {
	half, every int
}

func (w windows) count(slots int) int { return (slots + w.every - 1) / w.every }

// list holds the atoms of a window in ascending order.
type list struct {
	all, medians sortedAtoms
	counts       [maxRows * 2]uint16 // slots by row and side
}

// listBudget bounds the places in windows that are held at a time.
const listBudget = 48 << 10

// span is the run of windows that a position is in.
type span struct{ from, to int16 }

// spans returns the windows of each position of a pool.
func (w windows) spans(h *dayRows, reach int) []span {
	out := make([]span, h.slots+2*reach)
	middle := (w.every - 1) / 2
	last := w.count(h.slots) - 1
	for i := range out {
		// Window p has its middle at p*every + middle.
		x := int64(i - reach - middle)
		out[i].from = int16(max(0, floorDiv(x-int64(w.half-w.every+1), int64(w.every))))
		out[i].to = int16(min(int64(last), floorDiv(x+int64(w.half), int64(w.every))))
	}

	return out
}

// workspace holds what is used again from one group of experts to the next.
type workspace struct {
	pool, scratch sortedAtoms
	list          list
	places        []uint16 // a pool has fewer than 2^16 atoms
	lengths       []int
	tasks         []task
}

// visit calls a function with the list of each window; the list is valid during the call. Without upper it has medians
// only.
func (w windows) visit(h *dayRows, space *workspace, pool sortedAtoms, reach int, upper bool, call func(window int, l *list)) {
	windows := w.count(h.slots)
	capacity := (2*w.half + 1) * h.rows
	if upper {
		capacity *= h.kinds()
	}

	block := min(windows, max(1, listBudget/capacity))
	space.places = slices.Grow(space.places[:0], block*capacity)[:block*capacity]
	space.lengths = slices.Grow(space.lengths[:0], block)[:block]

	spans := w.spans(h, reach)

	// Windows are dealt out in blocks, which bounds the memory; each block is one run over the pool.
	for first := 0; first < windows; first += block {
		last := min(windows, first+block) - 1
		clear(space.lengths)

		for i, a := range pool {
			if !upper && tagOf(a)%atomCount != median {
				continue
			}

			covering := spans[listOf(a)]
			for p := max(first, int(covering.from)); p <= min(last, int(covering.to)); p++ {
				space.places[(p-first)*capacity+space.lengths[p-first]] = uint16(i)
				space.lengths[p-first]++
			}
		}

		for p := first; p <= last; p++ {
			space.list.set(pool, space.places[(p-first)*capacity:][:space.lengths[p-first]], upper && h.kinds() > 1)
			call(p, &space.list)
		}
	}
}

// set makes a list of the atoms at some places of a pool. Without separate all of them are medians.
func (l *list) set(pool sortedAtoms, places []uint16, separate bool) {
	l.all = l.all[:0]
	l.medians = l.medians[:0]
	clear(l.counts[:])

	for _, i := range places {
		a := pool[i]
		tag := tagOf(a)
		if separate {
			l.all = append(l.all, a)
			if tag%atomCount != median {
				continue
			}
		}

		l.medians = append(l.medians, a)
		l.counts[tag/atomCount]++
	}

	if !separate {
		l.all = append(l.all, l.medians...)
	}
}
