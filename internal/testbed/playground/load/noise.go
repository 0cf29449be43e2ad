// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"hash/fnv"
	"math"
)

// mix hashes numbers (the finalizer of splitmix64, chained). The result is the same on every machine.
func mix(parts ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range parts {
		h ^= p
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// hashString returns the FNV-1a hash of a string.
func hashString(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // a hash.Hash never fails
	return h.Sum64()
}

// unit maps a hash to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// between maps a hash to [low, high).
func between(h uint64, low, high float64) float64 { return low + (high-low)*unit(h) }

// bell maps a hash to (-1, 1) with a triangular distribution around 0 and a standard deviation of 0.41.
func bell(h uint64) float64 { return unit(h) + unit(mix(h)) - 1 }

// drift returns smooth noise in (-1, 1) at second s: it interpolates random values that are period seconds apart.
func drift(key uint64, s, period float64) float64 {
	k := math.Floor(s / period)
	f := s/period - k
	f = f * f * (3 - 2*f)
	return bell(mix(key, uint64(int64(k))))*(1-f) + bell(mix(key, uint64(int64(k))+1))*f
}
