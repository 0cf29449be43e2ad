// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "math"

// cell is a unit as it is kept: the top as it is, the other atoms as 16-bit shares of it. Twelve bytes instead of
// twenty, and a share is right to 1/4096 of itself whatever its size.
type cell struct {
	top   float32
	parts [maxSub + 1]uint16 // the medians, then the high
}

// A share has 5 bits of exponent and 11 of mantissa. It reaches from 2^-30 to 4: a sub-slot of a single sample may lie
// above the top of the whole unit. What is smaller is 0, what is larger is 4.
const (
	mantissaBits  = 11
	exponentOfOne = 30
	absent        = math.MaxUint16
	largestShare  = absent - 1
)

func packShare(v float32) uint16 {
	bits := math.Float32bits(v)
	// Round to nearest; a mantissa that overflows carries into the exponent, as it should.
	code := int64(bits)>>(23-mantissaBits) + int64(bits)>>(22-mantissaBits)&1 - (127-exponentOfOne)<<mantissaBits
	switch {
	case v != v:
		return absent
	case code < 1<<mantissaBits:
		return 0
	case code > largestShare:
		return largestShare
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

func emptyCell() cell {
	return cell{top: nan(), parts: [maxSub + 1]uint16{absent, absent, absent, absent}}
}

func (c cell) empty() bool { return c.top != c.top }

func (u unit) pack() cell {
	if u.empty() {
		return emptyCell()
	}
	out := cell{top: u.top}
	for i, v := range [maxSub + 1]float32{u.mid[0], u.mid[1], u.mid[2], u.high} {
		switch {
		case isNaN(v):
			out.parts[i] = absent
		case u.top > 0:
			out.parts[i] = packShare(v / u.top)
		}
	}
	return out
}

func (c cell) unpack() unit {
	u := unit{top: c.top, high: c.top * unpackShare(c.parts[maxSub])}
	for i := range u.mid {
		u.mid[i] = c.top * unpackShare(c.parts[i])
	}
	return u
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

// full reports whether the next cell pushes the oldest out.
func (r *ring) full() bool { return r.count > 0 && r.count == len(r.cells) }

// restart empties the ring; the next cell has the given index.
func (r *ring) restart(index int64) { r.end, r.count = index, 0 }
