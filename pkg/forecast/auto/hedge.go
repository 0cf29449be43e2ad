// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "math"

// tuning holds the parameters of the hedge. docs/explanation/forecasting.md has how they were chosen.
type tuning struct {
	// sharpness is how strongly weights depend on the mean log loss: an expert with a loss 1 % above the best weighs
	// exp(-sharpness/100). For the median and for the upper quantiles.
	sharpness [2]float64
	// maxGain and maxLoss bound the log of a day's loss relative to plain: a single day decides little, and less so in
	// favor of an expert than against it.
	maxGain, maxLoss float64
	// floor is added to losses, as a share of the mean loss of plain: days that are nearly perfect decide little.
	floor float64
	// conformal is the exponent of the correction of the upper quantiles by the replays: 0 none, 1 all of it.
	conformal float64
}

func defaultTuning() tuning {
	return tuning{
		sharpness: [2]float64{16, 6},
		maxGain:   0.5,
		maxLoss:   1.5,
		floor:     0.1,
		conformal: 0.5,
	}
}

// A mixture has weights of its own for each segment of the time ahead: what is best for the next hour is not best for tomorrow. Where the
// type of day changes at the next midnight, the first segments end there: experts that follow the newest hours are best on the evening of
// six replays out of seven.
const segmentCount = 3

// segmentHours returns the hours at which segments begin, and the end of the day.
func segmentHours() [segmentCount + 1]int { return [...]int{0, 1, 6, 24} }

// hedge is the weighted mixture of the experts.
type hedge struct {
	*outlook
	weights mixtureWeights
	width   float32 // correction of the distance of the upper quantiles from the median
	skill   float64
	origins int // replays that skill rests on
}

// newHedge weighs the experts by their replays.
func newHedge(o *outlook, t tuning) *hedge {
	h := &hedge{outlook: o, width: 1, skill: math.NaN()}
	losses := o.replayLosses()
	h.weights = o.weightsBefore(t, losses, 0)
	h.calibrate(t)
	h.measureSkill(t, losses)

	return h
}

// replayLosses returns the losses of all experts.
func (o *outlook) replayLosses() *segmentLosses {
	var losses segmentLosses
	for s := range segmentCount {
		for level := range replayLevels {
			losses[s][level] = o.losses(level, s)
		}
	}

	return &losses
}

// mixtureWeights are weights by segment, for the median and for the upper quantiles, then by expert.
type mixtureWeights [segmentCount][replayLevels][]float64

// segmentLosses are losses by segment, for the median and for the upper quantiles, by expert, then by replay.
type segmentLosses [segmentCount][replayLevels][][]float64

// weightsBefore returns the weights from the replays of first and of older days.
func (o *outlook) weightsBefore(t tuning, losses *segmentLosses, first int) mixtureWeights {
	var out mixtureWeights
	older := make([][]float64, len(o.experts))
	for s := range segmentCount {
		for level := range replayLevels {
			for e, replayed := range losses[s][level] {
				older[e] = replayed[min(first, len(replayed)):]
			}
			out[s][level] = o.weigh(t, level, older)
		}
	}

	return out
}

// measureSkill sets the skill: each replay is of the mixture as it was known at that origin, weighted by older replays.
func (h *hedge) measureSkill(t tuning, losses *segmentLosses) {
	rows := h.h
	slots := h.h.slots

	mixed := make(profile, replayLevels*slots)
	forecasts := make([]profile, len(h.experts))
	loss := 0.0

	reference := 0.0
	for i := range h.flat {
		past := hedge{outlook: h.outlook, weights: h.weightsBefore(t, losses, i+1)}
		for e := range forecasts {
			forecasts[e] = h.past[e][i]
		}

		past.mix(mixed, forecasts)
		loss += rows.pinball(i, mixed.level(1, slots), aboveReplayed()[0], 0, slots)
		reference += rows.pinball(i, h.flat[i].level(1, slots), aboveReplayed()[0], 0, slots)
	}

	h.origins = len(h.flat)
	if reference > 0 {
		h.skill = 1 - loss/reference
	}
}

// bounds returns the slots of a segment in a day.
func (o *outlook) bounds(segment int) (int, int) {
	hours := segmentHours()
	slotAt := func(i int) int {
		slot := hours[i] * o.h.slots / 24
		if i < segmentCount && o.h.midnight > 0 {
			return min(slot, o.h.midnight)
		}

		return slot
	}

	return slotAt(segment), slotAt(segment + 1)
}

// uses reports whether an expert forecasts a level: 0 for the median, 1 for the upper quantiles.
func (x expert) uses(level int) bool { return x.use&(forMedian<<level) != 0 }

// losses returns the loss of each expert in each replay, over a segment.
func (o *outlook) losses(level, segment int) [][]float64 {
	from, to := o.bounds(segment)
	out := make([][]float64, len(o.experts))
	for e, past := range o.past {
		if !o.experts[e].uses(level) {
			continue
		}

		out[e] = make([]float64, len(past))
		for i, p := range past {
			if level == 0 {
				out[e][i] = o.h.absolute(i, p, from, to)
			} else {
				out[e][i] = o.h.pinball(i, p.level(1, o.h.slots), aboveReplayed()[0], from, to)
			}
		}
	}

	return out
}

// weigh returns the weights of the experts: exp(-sharpness*l), where l is the mean log of the loss relative to plain.
func (o *outlook) weigh(t tuning, level int, losses [][]float64) []float64 {
	out := make([]float64, len(o.experts))

	// Losses are compared with plain's, with a floor so that nearly perfect days decide little.
	plain := losses[plainExpert]

	floor := 0.0
	for _, loss := range plain {
		floor += t.floor * loss / float64(len(plain))
	}

	lowest := math.Inf(1)
	for e, x := range o.experts {
		if !x.uses(level) {
			continue
		}

		for i, loss := range losses[e] {
			out[e] += t.clippedLog(loss+floor, plain[i]+floor) / float64(len(plain))
		}
		lowest = min(lowest, out[e])
	}

	sum := 0.0
	for e, x := range o.experts {
		if x.uses(level) {
			out[e] = x.prior * math.Exp(-t.sharpness[level]*(out[e]-lowest))
			sum += out[e]
		}
	}

	for e := range out {
		out[e] /= sum
	}

	return out
}

// calibrate sets the width from the replays of the mixture.
func (h *hedge) calibrate(t tuning) {
	rows := h.h
	slots := h.h.slots
	scores := h.space.pool[:0]

	mixed := make(profile, replayLevels*slots)
	forecasts := make([]profile, len(h.experts))

	// Scores are errors in units of the forecast width: their quantile at the level is the factor that would have been right.
	var total float32
	for i := range h.flat {
		for e := range forecasts {
			forecasts[e] = h.past[e][i]
		}

		h.mix(mixed, forecasts)
		middle := mixed.level(0, slots)
		upper := mixed.level(1, slots)
		for x := range slots {
			a := &rows.atoms[i*slots+x]
			if a.empty() {
				continue
			}

			total++
			width := upper[x] - middle[x]
			for k, y := range a[:rows.kinds()] {
				score := float32(0)
				if width > 0 {
					score = (y - middle[x]) / width
				} else if y > upper[x] {
					score = math.MaxFloat32
				}

				scores = append(scores, pack(score, 0, k))
			}
		}
	}

	var q [1]float32
	if scores.sort(h.space.scratch).upper(rows.shares[:], total, aboveReplayed(), q[:]) {
		h.width = float32(math.Pow(min(3, max(0.3, float64(q[0]))), t.conformal))
	}
}

// vote is the forecast of an expert for a slot.
type vote struct{ value, weight float32 }

// negligible is the weight below which an expert is left out.
const negligible = 1e-3

// mix combines the forecasts of the experts for a day: the median is the weighted mean of what lies between their
// weighted quartiles, so that no single expert decides; an upper quantile is their weighted mean.
func (h *hedge) mix(out profile, forecasts []profile) {
	for s := range segmentCount {
		from, to := h.bounds(s)
		h.mixMedian(out, forecasts, h.weights[s][0], from, to)
		h.mixUpper(out, forecasts, h.weights[s][1], from, to)
	}
}

func (h *hedge) mixMedian(out profile, forecasts []profile, weights []float64, from, to int) {
	var members []int
	sum := float32(0)
	for e, w := range weights {
		if w > negligible {
			members = append(members, e)
			sum += float32(w)
		}
	}

	votes := make([]vote, len(members))
	for x := from; x < to; x++ {
		for n, e := range members {
			v := vote{forecasts[e][x], float32(weights[e])}
			for ; n > 0 && votes[n-1].value > v.value; n-- {
				votes[n] = votes[n-1]
			}
			votes[n] = v
		}

		out[x] = trimmedMean(votes, sum/4, sum*3/4)
	}
}

func (h *hedge) mixUpper(out profile, forecasts []profile, weights []float64, from, to int) {
	slots := h.h.slots
	for l := 1; l < len(out)/slots; l++ {
		clear(out.level(l, slots)[from:to])
		total := float32(0)
		for e, w := range weights {
			if w <= negligible {
				continue
			}

			// A running weighted mean: equal forecasts give exactly their value.
			total += float32(w)

			share := float32(w) / total
			part := out.level(l, slots)[from:to]
			for i, v := range forecasts[e].level(l, slots)[from:to] {
				part[i] += (v - part[i]) * share
			}
		}

		for x := from; x < to; x++ {
			out[l*slots+x] = max(out[l*slots+x], out[x])
		}
	}
}

// trimmedMean returns the weighted mean of votes in ascending order, between two cumulative weights.
func trimmedMean(votes []vote, from, to float32) float32 {
	if votes[0].value == votes[len(votes)-1].value {
		return votes[0].value
	}

	cumulative := float32(0)
	mean := float32(0)
	weight := float32(0)
	for _, v := range votes {
		w := min(to, cumulative+v.weight) - max(from, cumulative)
		cumulative += v.weight

		if w > 0 {
			weight += w
			mean += (v.value - mean) * w / weight
		}
	}

	return mean
}

// day forecasts a day that begins ahead days after the origin.
func (h *hedge) day(ahead int) profile {
	slots := h.h.slots
	out := make(profile, allLevels*slots)

	forecasts := make([]profile, len(h.experts))
	for e, days := range h.days {
		forecasts[e] = days[ahead%len(days)]
	}

	// Later days have the weights of the last segment.
	for s := range segmentCount {
		from, to := h.bounds(s)
		if ahead > 0 {
			s = segmentCount - 1
		}

		h.mixMedian(out, forecasts, h.weights[s][0], from, to)
		h.mixUpper(out, forecasts, h.weights[s][1], from, to)

		for l := 1; l < allLevels; l++ {
			for x := from; x < to; x++ {
				out[l*slots+x] = out[x] + (out[l*slots+x]-out[x])*h.width
			}
		}
	}

	return out
}

// clippedLog returns the log of the loss of a day relative to plain, within its bounds; 0 where both are perfect on all days.
func (t tuning) clippedLog(loss, plain float64) float64 {
	ratio := math.Log(loss / plain)
	if math.IsNaN(ratio) {
		return 0
	}

	return min(t.maxLoss, max(-t.maxGain, ratio))
}
