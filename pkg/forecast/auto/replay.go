// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast"
)

// gate is what replaying the newest seasons taught: what each candidate weighs, and how well the mixture did.
type gate struct {
	banks   *banks
	unit    time.Duration
	replays int
	// exceptional marks the replayed rows that were holidays, as far as can be seen.
	exceptional []bool

	middles       []kernel
	middleWeights []float64

	tails []kernel
	// tailWeights are of the tails, then of the residuals by segment of the season, then of those over all of it.
	tailWeights []float64
	residuals   *residuals
	// today reports whether the day goes as its weekday goes.
	today today
	// margin shrinks the share above each upper level; see tuning.
	margin float32

	skill float64
}

// newGate replays the newest rows, each from the rows before it, and weighs the candidates by how they did.
func newGate(b *banks, unit time.Duration) *gate {
	o := &gate{banks: b, middles: b.usable(middleKernels()), tails: b.usable(tailKernels())}
	o.replays = b.grid.replays(b.tuning.replays)
	o.exceptional = b.exceptional(o.replays)
	medians := o.replayMiddles()
	o.residuals = newResiduals(b.grid, medians)
	o.replayTails(medians)
	o.today = b.newToday(medians, unit)
	o.unit = unit
	return o
}

// usable leaves out the candidates that need more weeks than there are.
func (b *banks) usable(kernels []kernel) []kernel {
	return slices.DeleteFunc(kernels, func(k kernel) bool {
		return k.long && !b.weeks.long() || k.place == atWeek && b.weeks.perWeek == 0
	})
}

// replayMiddles weighs the candidates for the median and returns the combined median of each replayed row, by slot.
func (o *gate) replayMiddles() [][]float32 {
	g, t := o.banks.grid, o.banks.tuning
	scores := newScores(len(o.middles), o.replays, t.replayHalfLife)
	scores.discount(o.exceptional, t.exceptional)
	store := make([]float32, len(o.middles)*o.replays*g.slots)
	for c, k := range o.middles {
		for i := range o.replays {
			part := store[(c*o.replays+i)*g.slots:][:g.slots]
			o.banks.middle(k, i, 0, true, part)
			scores.losses[c][i] = g.absolute(i, part)
		}
	}
	o.middleWeights = scores.weights(t.sharpness)
	o.drop(o.middles, o.middleWeights)

	medians := make([][]float32, o.replays)
	votes := newElection(o.middleWeights)
	for i := range medians {
		medians[i] = make([]float32, g.slots)
		for s := range medians[i] {
			for v := range votes.candidates {
				votes.candidates[v].value = store[(votes.candidates[v].index*o.replays+i)*g.slots+s]
			}
			medians[i][s] = votes.elect(t.trim)
		}
	}
	return medians
}

// replayTails weighs the candidates for the upper quantiles.
func (o *gate) replayTails(medians [][]float32) {
	g, t := o.banks.grid, o.banks.tuning
	replays := max(0, len(medians)-1) // the oldest has no residuals before it
	scores := newScores(len(o.tails)+2, replays, t.replayHalfLife)
	scores.discount(o.exceptional, t.exceptional)
	above := gateAbove()
	past := newReplayed(len(o.tails)+2, replays, g.slots, len(above))
	reference := 0.0
	for i := range replays {
		for c, k := range o.tails {
			o.banks.upper(k, i, 0, above, past.part(c, i))
			scores.losses[c][i] = g.pinball(i, past.part(c, i), above)
		}
		for c, segmented := range []bool{true, false} {
			part := past.part(len(o.tails)+c, i)
			o.residuals.upper(i, segmented, medians[i], above, part)
			scores.losses[len(o.tails)+c][i] = g.pinball(i, part, above)
		}
		// The reference is the last of the tails.
		reference += scores.losses[len(o.tails)-1][i] * scores.importance[i]
	}
	o.tailWeights = scores.weights(t.tailSharpness)
	if len(medians) == 0 {
		clear(o.tailWeights[len(o.tails):])
	}
	o.drop(o.tails, o.tailWeights)
	o.margin = t.margin
	if passed := past.passed(g, o.tailWeights, scores.importance, judgedLevel); replays >= t.marginReplays && passed > t.tolerated {
		o.margin *= float32(max(t.leastMargin, t.tolerated/passed))
	}

	// The loss of a mean of quantiles is at most the mean of their losses: the skill is a lower bound.
	o.skill = math.NaN()
	if reference > 0 {
		loss := 0.0
		for c, w := range o.tailWeights {
			loss += w * scores.total(c)
		}
		o.skill = 1 - loss/reference
	}
}

// drop takes the weight from candidates that cannot know anything: likeness that no replay could put to the test, and
// the time of day where no season is complete.
func (o *gate) drop(kernels []kernel, weights []float64) {
	g := o.banks.grid
	var away [maxRows]float64
	tested := o.banks.unlike(0, 0, away[:len(g.rows)])
	seasonal := g.fullRows() > 0
	for i, k := range kernels {
		if (k.like || k.place == atWeek) && !tested || k.place != atLevel && !seasonal {
			weights[i] = 0
		}
	}
	normalise(weights)
}

const tails = forecast.NumLevels - 1

// tailsAbove returns the shares above the upper levels of forecast.Levels, shrunk by a margin.
func tailsAbove(margin float32) []float32 {
	out := make([]float32, 0, tails)
	for _, level := range forecast.Levels() {
		if level > 0.5 {
			out = append(out, float32(1-level)*margin)
		}
	}
	return out
}

// seasonForecast is the forecast of one season: a median for each sub-slot, upper quantiles for each slot.
type seasonForecast struct {
	middle []float32
	upper  []float32
}

// season forecasts the season that begins ahead seasons after the origin.
func (o *gate) season(ahead int) seasonForecast {
	g := o.banks.grid
	out := seasonForecast{middle: make([]float32, g.slots*g.sub), upper: make([]float32, g.slots*tails)}
	votes := newElection(o.middleWeights)
	length := len(out.middle)
	store := make([]float32, len(votes.candidates)*length)
	for c, v := range votes.candidates {
		o.banks.middle(o.middles[v.index], -1, ahead, false, store[c*length:(c+1)*length])
	}
	for i := range out.middle {
		for v := range votes.candidates {
			votes.candidates[v].value = store[votes.candidates[v].order*length+i]
		}
		out.middle[i] = votes.elect(o.banks.tuning.trim)
	}
	o.upperSeason(ahead, out)
	if ahead == 0 {
		o.follow(out)
	}
	return out
}

func (o *gate) upperSeason(ahead int, out seasonForecast) {
	g := o.banks.grid
	above := tailsAbove(o.margin)
	part := make([]float32, len(out.upper))
	median := make([]float32, g.slots)
	for s := range median {
		median[s] = out.middle[s*g.sub+g.sub/2]
	}
	sum := 0.0
	for c, w := range o.tailWeights {
		if w < negligible {
			continue
		}
		if c < len(o.tails) {
			o.banks.upper(o.tails[c], -1, ahead, above, part)
		} else {
			o.residuals.upper(-1, c == len(o.tails), median, above, part)
		}
		// A running weighted mean: equal forecasts give exactly their value.
		sum += w
		share := float32(w / sum)
		for i, v := range part {
			out.upper[i] += (v - out.upper[i]) * share
		}
	}
}

func (f seasonForecast) at(slot, sub, subs int, limit float64) forecast.Quantiles {
	var q forecast.Quantiles
	q[0] = min(limit, float64(f.middle[slot*subs+sub]))
	for l := range tails {
		q[l+1] = min(limit, float64(f.upper[slot*tails+l]))
	}
	return q.Ordered()
}
