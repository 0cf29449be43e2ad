// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
)

// expert is a simple forecasting method. Replays decide how much each of them weighs; see hedge.
type expert struct {
	name string
	// use is the set of levels that it forecasts.
	use use
	// half and every define the windows of the time of day that share a forecast, in minutes: what lies within half of
	// the middle of a window of every minutes. An every of 0 is a slot.
	half, every int
	transform   transform
	// weigh returns the weight of a row at an origin, for the day that begins ahead days after it.
	weigh func(h *dayRows, origin, row, ahead int) float64
	// byDay reports whether weigh depends on ahead.
	byDay bool
	// newest is the number of newest minutes that are used, whatever the time of day; 0 for experts with windows.
	newest int
	// prior is the weight before replays.
	prior float64
}

// use is a set of levels.
type use int

const (
	forMedian use = 1 << iota
	forUpper
	forBoth = forMedian | forUpper
)

func decay(factor float64) func(*dayRows, int, int, int) float64 {
	return func(_ *dayRows, origin, row, _ int) float64 { return math.Pow(factor, float64(row-origin)) }
}

// sameWeekday weighs the rows of the weekday of the forecast.
func sameWeekday(_ *dayRows, origin, row, ahead int) float64 {
	if (row-origin+1+ahead)%7 != 0 {
		return 0
	}

	return math.Pow(0.85, float64((row-origin)/7))
}

// afterLikeDays weighs rows by how much the day before them is like the newest day.
func afterLikeDays(h *dayRows, origin, row, _ int) float64 {
	return h.likeness(origin, row+1) * math.Pow(0.9, float64(row-origin))
}

// likeness returns exp(-3*(d-least)/middle), where d is the distance of a row to the newest one at an origin, and least
// and middle are the least and the median of the distances of all rows before it.
func (h *dayRows) likeness(origin, row int) float64 {
	if row >= h.rows {
		return 0
	}

	var store [maxRows]float64
	distances := store[:0]
	for r := origin + 1; r < h.rows; r++ {
		if d := h.distances[origin*h.rows+r]; !math.IsNaN(d) {
			distances = append(distances, d)
		}
	}

	d := h.distances[origin*h.rows+row]
	if math.IsNaN(d) {
		return 0
	}

	slices.Sort(distances)
	middle := distances[len(distances)/2]
	if !(middle > 0) {
		return 1
	}

	return math.Exp(-3 * (d - distances[0]) / middle)
}

// plainExpert is the index of the expert that the losses of the others are relative to: the same forecast as plain in
// package baseline.
const plainExpert = 0

// experts returns the methods of the mixture. Each is best on some kind of series: short memories follow drift and new
// levels, long ones average noise, fine windows keep sharp edges, the newest hours serve series without a season. Methods
// that know the weekday forecast the median alone: their upper quantiles ignore that yesterday was unusual.
func experts() []expert {
	const minute, hour = 1, 60

	// The first one is plainExpert.
	return []expert{
		{name: "time of day", use: forBoth, half: 15 * minute, weigh: decay(0.8), prior: 1},
		{name: "time of day, newest days", use: forMedian, half: 15 * minute, weigh: decay(0.5), prior: 1},
		{name: "days after a day like the newest", use: forMedian, half: 15 * minute, weigh: afterLikeDays, prior: 1},
		{name: "same weekday", use: forMedian, half: 15 * minute, weigh: sameWeekday, byDay: true, prior: 1},
		{name: "minutes", use: forBoth, weigh: decay(0.8), prior: 1},
		{name: "minutes, newest days", use: forMedian, weigh: decay(0.5), prior: 1},
		{name: "minutes, all days", use: forBoth, weigh: decay(1), prior: 1},
		{name: "minutes after a day like the newest", use: forMedian, weigh: afterLikeDays, prior: 1},
		{name: "hours", use: forUpper, half: hour, every: 30 * minute, weigh: decay(0.8), prior: 1},
		{name: "parts of the day", use: forUpper, half: 3 * hour, every: 2 * hour, weigh: decay(0.8), prior: 1},
		{
			name: "time of day at the level of the newest day", use: forMedian, half: 15 * minute, every: 15 * minute, transform: scaledDay,
			weigh: decay(0.8), prior: 1,
		},
		{
			name: "time of day scaled to the newest hours", use: forBoth, half: 15 * minute, transform: scaledHours,
			weigh: decay(0.8), prior: 1,
		},
		{
			name: "time of day shifted to the newest hours", use: forBoth, half: 15 * minute, every: 15 * minute, transform: shiftedHours,
			weigh: decay(0.8), prior: 1,
		},
		{
			name: "minutes scaled to the newest hours, after a day like the newest", use: forBoth, transform: scaledHours, weigh: afterLikeDays,
			prior: 1,
		},
		{name: "newest 15 minutes", use: forUpper, newest: 15 * minute, prior: 0.3},
		{name: "newest hour", use: forMedian, newest: hour, prior: 0.3},
		{name: "newest 6 hours", use: forMedian, newest: 6 * hour, prior: 0.3},
		{name: "newest day", use: forUpper, newest: 24 * hour, prior: 1},
		{name: "newest 3 days", use: forBoth, newest: 3 * 24 * hour, prior: 1},
	}
}

// cell is a slot as it is stored: the top atom as it is, the others as 16-bit shares of it.
type cell struct {
	top   float32
	parts [top]uint16 // the median, then the high atom
}

// The code of a share up to a half has 5 bits of exponent and 10 of mantissa; it is 0, or from 2^-30. The code of a larger one is wholeShare
// less that of the rest, so that samples which hardly differ keep their difference: it is accurate to 1/2048. Codes are in the order of shares.
const (
	mantissaBits = 10
	// exponentBias is the biased exponent of a float32 that the code 0 has.
	exponentBias = 127 - 31
	halfShare    = (126 - exponentBias) << mantissaBits
	wholeShare   = 2 * halfShare
	absent       = math.MaxUint16
)

func packShare(v float32) uint16 {
	switch {
	case v != v:
		return absent
	case v >= 1:
		return wholeShare
	case v > 0.5:
		return wholeShare - packHalf(1-v)
	}

	return packHalf(v)
}

// packHalf returns the code of a share up to a half.
func packHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	// Round to nearest; a mantissa that overflows carries into the exponent.
	code := int64(bits)>>(23-mantissaBits) + int64(bits)>>(22-mantissaBits)&1 - exponentBias<<mantissaBits
	if code < 1<<mantissaBits {
		return 0
	}

	return uint16(code)
}

func unpackShare(code uint16) float32 {
	switch {
	case code == absent:
		return nan()
	case code > halfShare:
		return 1 - unpackHalf(wholeShare-code)
	}

	return unpackHalf(code)
}

func unpackHalf(code uint16) float32 {
	if code == 0 {
		return 0
	}

	return math.Float32frombits((uint32(code) + exponentBias<<mantissaBits) << (23 - mantissaBits))
}

func emptyCell() cell { return cell{top: nan(), parts: [top]uint16{absent, absent}} }

func (c cell) empty() bool { return c.top != c.top }

func (a atoms) pack() cell {
	if a.empty() {
		return emptyCell()
	}

	out := cell{top: a[top]}
	if a[top] > 0 {
		out.parts = [top]uint16{packShare(a[median] / a[top]), packShare(a[high] / a[top])}
	}

	return out
}

func (c cell) unpack() atoms {
	return atoms{c.top * unpackShare(c.parts[median]), c.top * unpackShare(c.parts[high]), c.top}
}

// ring keeps the newest of a run of cells. Its zero value is empty.
type ring struct {
	cells []cell
	end   int64 // index of the cell after the newest
	count int
}

// push adds the cell after the newest; capacity is always the same.
func (r *ring) push(c cell, capacity int) {
	if r.cells == nil {
		r.cells = make([]cell, capacity)
	}

	r.cells[floorMod(r.end, int64(len(r.cells)))] = c
	r.end++
	r.count = min(r.count+1, len(r.cells))
}

// at returns the cell of an index, an empty one where the ring does not hold it.
func (r *ring) at(index int64) cell {
	if index >= r.end || index < r.end-int64(r.count) {
		return emptyCell()
	}

	return r.cells[floorMod(index, int64(len(r.cells)))]
}

// multiply scales the values of all cells.
func (r *ring) multiply(factor float32) {
	for i := range r.cells {
		r.cells[i].top *= factor
	}
}

// restart empties the ring; the next cell has the given index.
func (r *ring) restart(index int64) {
	r.end = index
	r.count = 0
}
