// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "math"

// cell is a slot as it is stored: the top atom as it is, the others as 16-bit shares of it, accurate to 1/4096.
type cell struct {
	top   float32
	parts [top]uint16 // the median, then the high atom
}

// A share has 5 bits of exponent and 11 of mantissa. It is 0, or from 2^-30 to 1.
const (
	mantissaBits  = 11
	exponentOfOne = 30
	absent        = math.MaxUint16
	wholeShare    = exponentOfOne << mantissaBits
)

func packShare(v float32) uint16 {
	bits := math.Float32bits(v)
	// Round to nearest; a mantissa that overflows carries into the exponent.
	code := int64(bits)>>(23-mantissaBits) + int64(bits)>>(22-mantissaBits)&1 - (127-exponentOfOne)<<mantissaBits
	switch {
	case v != v:
		return absent
	case code < 1<<mantissaBits:
		return 0
	case code > wholeShare:
		return wholeShare
	}
	return uint16(code)
}

func unpackShare(code uint16) float32 {
	switch code {
	case 0:
		return 0
	case absent:
		return nan()
	}
	return math.Float32frombits((uint32(code) + (127-exponentOfOne)<<mantissaBits) << (23 - mantissaBits))
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

// restart empties the ring; the next cell has the given index.
func (r *ring) restart(index int64) { r.end, r.count = index, 0 }
