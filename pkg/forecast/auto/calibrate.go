// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

// replayed is what the candidates forecast of the replayed rows, so that what the mixture of them would have been can be
// looked at once their weights are known.
type replayed struct {
	rows, levels, length int       // length is that of one replay of one candidate
	store                []float32 // by candidate, row, slot and level
}

func newReplayed(candidates, rows, slots, levels int) *replayed {
	r := &replayed{rows: rows, levels: levels, length: slots * levels}
	r.store = make([]float32, candidates*rows*r.length)
	return r
}

// part is what a candidate forecast of a row.
func (r *replayed) part(candidate, row int) []float32 {
	return r.store[(candidate*r.rows+row)*r.length:][:r.length]
}

// passed returns the share of the samples that lay above a quantile of the mixture, by the importance of the rows.
func (r *replayed) passed(g *grid, weights, importance []float64, level int) float64 {
	above, total := 0.0, 0.0
	mixture := make([]float32, g.slots)
	for row := range r.rows {
		sum := 0.0
		for i, w := range weights {
			if w < negligible {
				continue
			}
			sum += w
			share, part := float32(w/sum), r.part(i, row)
			for s := range mixture {
				mixture[s] += (part[s*r.levels+level] - mixture[s]) * share
			}
		}
		over, seen := float32(0), float32(0)
		for s, q := range mixture {
			u := &g.rows[row].units[s]
			middle := u.mid[g.turn(row, s)]
			if isNaN(middle) {
				continue
			}
			seen++
			for a, v := range [levelAtoms]float32{middle, u.high, u.top} {
				if v > q {
					over += g.shares[a]
				}
			}
		}
		above += importance[row] * float64(over)
		total += importance[row] * float64(seen)
	}
	if !(total > 0) {
		return 0
	}
	return above / total
}
