// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "math"

// scores holds the loss of each candidate at each replayed row and turns losses into weights.
type scores struct {
	losses     [][]float64 // by candidate, then by row
	importance []float64   // of each row: newer ones count more
}

func newScores(candidates, rows int, halfLife float64) *scores {
	s := &scores{losses: make([][]float64, candidates), importance: make([]float64, rows)}
	cells := make([]float64, candidates*rows)
	for i := range s.losses {
		s.losses[i] = cells[i*rows : (i+1)*rows]
	}
	for row := range s.importance {
		s.importance[row] = math.Exp2(-float64(row) / halfLife)
	}
	return s
}

// discount makes rows count less.
func (s *scores) discount(rows []bool, factor float64) {
	for row := range s.importance {
		if rows[row] {
			s.importance[row] *= factor
		}
	}
}

// total returns the loss of a candidate over all rows.
func (s *scores) total(candidate int) float64 {
	sum := 0.0
	for row, loss := range s.losses[candidate] {
		sum += loss * s.importance[row]
	}
	return sum
}

// weights returns the weight of each candidate: exp(-sharpness * relative loss above the best), less sharp if few
// rows are decisive. They sum to 1. Without replays all weights are equal.
func (s *scores) weights(sharpness float64) []float64 {
	out := make([]float64, len(s.losses))
	best := math.Inf(1)
	for i := range out {
		out[i] = s.total(i)
		best = min(best, out[i])
	}
	sharpness *= s.evenness()
	for i, loss := range out {
		switch {
		case best > 0:
			out[i] = math.Exp(-sharpness * (loss/best - 1))
		case loss > 0:
			out[i] = 0
		default:
			out[i] = 1
		}
	}
	normalise(out)
	return out
}

// evenness returns, from 0 to 1, how evenly the losses are spread over the rows. Near 0 a single row dominates: a day
// on which all candidates failed is little evidence about other days. It is the effective number of rows, by loss,
// relative to that by importance (Kish's formula).
func (s *scores) evenness() float64 {
	sum, squares, weights, weightSquares := 0.0, 0.0, 0.0, 0.0
	for row, w := range s.importance {
		loss := 0.0
		for _, losses := range s.losses {
			loss += losses[row]
		}
		sum += w * loss
		squares += w * loss * w * loss
		weights += w
		weightSquares += w * w
	}
	if len(s.importance) < 2 || !(squares > 0) {
		return 1
	}
	effective, most := sum*sum/squares, weights*weights/weightSquares
	return min(1, max(0, (effective-1)/(most-1)))
}

// normalise scales weights to sum to 1; where none is positive all become equal.
func normalise(weights []float64) {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for i := range weights {
		if sum > 0 {
			weights[i] /= sum
		} else {
			weights[i] = 1 / float64(len(weights))
		}
	}
}

// absolute adds up the absolute errors of a median forecast of a row, which has a value for each slot.
func (g *grid) absolute(target int, forecast []float32) float64 {
	mid := g.sub / 2
	sum := float32(0)
	for s, u := range g.rows[target].units {
		// A gap is NaN and adds nothing.
		if d := u.mid[mid] - forecast[s]; d > 0 {
			sum += d
		} else if d < 0 {
			sum -= d
		}
	}
	return float64(sum)
}

// pinball adds up the pinball losses of a forecast of upper quantiles of a row, over the atoms of each unit. forecast
// has len(above) values for each slot.
func (g *grid) pinball(target int, forecast []float32, above []float32) float64 {
	n := len(above)
	units := g.rows[target].units
	sum := float32(0)
	for s := range units {
		u := &units[s]
		quantiles := forecast[s*n : (s+1)*n]
		if g.shares[1] == 0 {
			for _, v := range u.mid[:g.sub] {
				if !isNaN(v) {
					sum += pinballs(v, quantiles, above) / float32(g.sub)
				}
			}
			continue
		}
		if v := u.mid[g.turn(target, s)]; !isNaN(v) {
			sum += g.shares[0]*pinballs(v, quantiles, above) + g.shares[1]*pinballs(u.high, quantiles, above) +
				g.shares[2]*pinballs(u.top, quantiles, above)
		}
	}
	return float64(sum)
}

// pinballs adds up the pinball losses of the quantiles of one value; above are the shares above their levels.
func pinballs(y float32, quantiles, above []float32) float32 {
	sum := float32(0)
	for l, q := range quantiles {
		d := y - q
		sum += max((1-above[l])*d, -above[l]*d)
	}
	return sum
}
