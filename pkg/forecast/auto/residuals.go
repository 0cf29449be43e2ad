// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "crane.io/crane/pkg/forecast"

// residuals are what the samples of replayed rows differed from their replayed median: the errors of honest forecasts,
// from which upper quantiles follow that widen where forecasting is hard (split conformal prediction, but over origins).
// They are kept in segments of the season, and once for the whole of it.
type residuals struct {
	rows     int
	shares   shares
	segments []sortedAtoms
	all      sortedAtoms
	per      int // slots of a segment
	weights  []float32
	counts   []float32 // atoms of each tag over all segments
}

const (
	residualAtoms    = 3
	residualSegments = 8
)

// newResiduals compares replayed medians with what happened. medians[i] has a value for each slot of row i.
func newResiduals(g *grid, medians [][]float32) *residuals {
	r := &residuals{rows: len(medians), shares: g.shares, per: (g.slots + residualSegments - 1) / residualSegments}
	count := (g.slots + r.per - 1) / r.per
	store := make(sortedAtoms, 0, len(medians)*g.slots*residualAtoms)
	r.counts = make([]float32, len(medians)*residualAtoms)
	r.weights = make([]float32, len(medians)*residualAtoms)
	for k, m := range medians {
		for s := range g.slots {
			u := &g.rows[k].units[s]
			middle := u.mid[g.turn(k, s)]
			if isNaN(middle) {
				continue
			}
			list, tag := s/r.per, k*residualAtoms
			store = append(store, pack(middle-m[s], list, tag), pack(u.high-m[s], list, tag+1),
				pack(u.top-m[s], list, tag+2))
			for a := range residualAtoms {
				r.counts[tag+a]++
			}
		}
	}
	r.all = store.sort(make(sortedAtoms, len(store)))
	r.segments = r.all.split(count)
	return r
}

// weigh prepares the weights for a target row and returns the weight of all atoms; rows not older than the target weigh
// nothing.
func (r *residuals) weigh(target int) float32 {
	var total float32
	for k := range r.rows {
		for a, share := range r.shares {
			w := share
			if k <= target {
				w = 0
			}
			r.weights[k*residualAtoms+a] = w
			total += w * r.counts[k*residualAtoms+a]
		}
	}
	return total
}

// upper adds quantiles of the residuals to a median, which has a value for each slot. Where there are no residuals older
// than the target it gives the median itself.
func (r *residuals) upper(target int, segmented bool, median []float32, above []float32, out []float32) {
	total := r.weigh(target)
	n := len(above)
	var all, own [forecast.NumLevels]float32
	r.all.upper(r.weights, total, above, all[:n])
	for i, list := range r.segments {
		use := all[:n]
		if segmented && list.upper(r.weights, list.total(r.weights), above, own[:n]) {
			use = own[:n]
		}
		for s := i * r.per; s < min(len(median), (i+1)*r.per); s++ {
			for l, q := range use {
				out[s*n+l] = max(0, median[s]+q)
			}
		}
	}
}
