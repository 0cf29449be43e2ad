// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

// election combines the values of weighted candidates into one: the mean of what is left after the same share of weight
// is cut off at both ends. A candidate that is far out does not move it, however it got its weight.
type election struct {
	candidates []candidate
}

type candidate struct {
	value  float32
	weight float32
	index  int // among all candidates
	order  int // among those that are not negligible
}

// negligible is the weight below which a candidate is left out.
const negligible = 0.01

func newElection(weights []float64) *election {
	e := &election{}
	var sum float32
	for i, w := range weights {
		if w >= negligible {
			e.candidates = append(e.candidates, candidate{weight: float32(w), index: i, order: len(e.candidates)})
			sum += float32(w)
		}
	}
	for i := range e.candidates {
		e.candidates[i].weight /= sum
	}
	return e
}

// elect returns the trimmed mean of the candidates' values; trim is the share cut off at each end, below one half. It
// reorders the candidates.
func (e *election) elect(trim float32) float32 {
	x := e.candidates
	for i := 1; i < len(x); i++ {
		v := x[i]
		j := i
		for j > 0 && x[j-1].value > v.value {
			x[j] = x[j-1]
			j--
		}
		x[j] = v
	}
	// Sum differences to the smallest value: equal votes give exactly that value.
	base := x[0].value
	var before, sum float32
	for _, c := range x {
		from, to := max(before, trim), min(before+c.weight, 1-trim)
		if to > from {
			sum += (to - from) * (c.value - base)
		}
		before += c.weight
	}
	return base + sum/(1-2*trim)
}
