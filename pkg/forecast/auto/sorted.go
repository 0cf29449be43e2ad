// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
)

// sortedAtoms are values in ascending order, each with a tag that determines its weight. They are sorted once and
// read many times under different weights, which is what makes replaying cheap.
//
// An atom is packed in 64 bits: the value, as an order-preserving integer, above the list that it belongs to, above the
// tag.
type sortedAtoms []uint64

const (
	valueShift = 32
	listShift  = 16
	fieldMask  = 1<<16 - 1
)

func pack(v float32, list, tag int) uint64 {
	bits := math.Float32bits(v)
	if bits>>31 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 31
	}

	return uint64(bits)<<valueShift | uint64(list)<<listShift | uint64(tag)
}

func unpack(a uint64) float64 {
	bits := uint32(a >> valueShift)
	if bits>>31 != 0 {
		bits &^= 1 << 31
	} else {
		bits = ^bits
	}

	return float64(math.Float32frombits(bits))
}

func listOf(a uint64) int { return int(a >> listShift & fieldMask) }

func tagOf(a uint64) int { return int(a & fieldMask) }

// sort orders atoms by value, with the help of scratch where there are many; it returns them in one of the two.
func (a sortedAtoms) sort(scratch sortedAtoms) sortedAtoms {
	switch {
	case len(a) <= 20:
		for i := 1; i < len(a); i++ {
			v := a[i]
			j := i
			for j > 0 && a[j-1] > v {
				a[j] = a[j-1]
				j--
			}

			a[j] = v
		}

		return a

	case len(a) < 256 || len(scratch) < len(a):
		slices.Sort(a)
		return a
	}

	return a.radix(scratch[:len(a)])
}

// radix sorts by the 32 bits of the value in three runs, least significant digits first. It is stable.
func (a sortedAtoms) radix(scratch sortedAtoms) sortedAtoms {
	const bits = 11
	const size = 1 << bits
	var counts [3][size]uint32
	for _, x := range a {
		counts[0][x>>valueShift&(size-1)]++
		counts[1][x>>(valueShift+bits)&(size-1)]++
		counts[2][x>>(valueShift+2*bits)&(size-1)]++
	}

	for digit := range counts {
		shift := valueShift + digit*bits
		digits := &counts[digit]
		if digits[a[0]>>shift&(size-1)] == uint32(len(a)) {
			continue // all the same
		}

		var next uint32
		for i, n := range digits {
			digits[i] = next
			next += n
		}

		for _, x := range a {
			d := x >> shift & (size - 1)
			scratch[digits[d]] = x
			digits[d]++
		}

		a, scratch = scratch, a
	}

	return a
}

// median returns the smallest value with half of the weight at or below it; false where nothing weighs. total is the
// weight of all atoms.
func (a sortedAtoms) median(weights []float32, total float32) (float64, bool) {
	half := total / 2
	if !(half > 0) {
		return 0, false
	}

	var sum float32
	for _, x := range a {
		sum += weights[x&fieldMask]
		if sum >= half {
			return unpack(x), true
		}
	}

	return unpack(a[len(a)-1]), true
}

// upper fills out with the quantiles at levels, which are given as the shares of the weight above them, descending (0.25 before 0.05);
// false where nothing weighs. total is the weight of all atoms. It walks from the top, so high quantiles are cheap.
func (a sortedAtoms) upper(weights []float32, total float32, above []float32, out []float32) bool {
	if !(total > 0) {
		return false
	}

	next := len(above) - 1
	var sum float32
	for _, v := range slices.Backward(a) {
		w := weights[v&fieldMask]
		if w == 0 {
			continue
		}

		sum += w
		for sum > above[next]*total {
			out[next] = float32(unpack(v))
			next--

			if next < 0 {
				return true
			}
		}
	}

	// Rounding may leave a weight unreached at the end.
	for ; next >= 0; next-- {
		out[next] = float32(unpack(a[0]))
	}

	return true
}
