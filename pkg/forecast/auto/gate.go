// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "math"

// The gate corrects the weights of the experts of the median. Networks with one hidden layer, shared by the experts, read how an expert
// did in the replays, how far it is from the hedge now and what the newest day is like, and return what is added to the logarithm of its
// weight. The mean of the weights of all networks and of the hedge is used. docs/explanation/forecasting.md has how it was trained.

// Inputs of the gate for one expert in one segment. Each is of the order of 1 and independent of the unit of the series.
const (
	inMeanLoss    = iota // mean log of the loss relative to plain in all replays
	inNewestLoss         // the same in the newest replay
	inNewLoss            // the same in the newest three
	inLossSpread         // its standard deviation over the replays
	inDayLoss            // mean log of the loss over the whole day
	inNewestDay          // the same in the newest replay
	inWins               // share of the replays in which it beats plain
	inWeight             // log of the weight in the hedge
	inShift              // mean distance from the hedge, by the mean error of plain
	inDistance           // mean absolute distance from the hedge, by the mean error of plain
	inShiftLevel         // mean distance from the hedge, by the level
	inLevel              // level of the newest day against the mean of all days
	inLate               // level of the newest hours against that of the same hours a day before
	inError              // mean error of plain against the level
	inNewestError        // error of plain in the newest replay against its mean
	inUnusual            // distance of the newest day from the others, against the distances of those
	inWeekly             // distance of the newest day from that a week before, against its distance from the others
	inSegment            // 1 in the second segment; the next input: 1 in the third
	gateScalars   = inSegment + segmentCount - 1
)

// gateInputs are the inputs of an expert but its identity.
type gateInputs [gateScalars]float32

// finite reports whether no input is NaN or infinite.
func (in *gateInputs) finite() bool {
	for _, v := range in {
		if v-v != 0 {
			return false
		}
	}

	return true
}

// gateReplays is the least number of replays with which the gate is used: it was trained on histories of a week or more.
const gateReplays = 6

// network is one network of the gate: for each hidden unit the weights of the inputs, of the identities of the experts and of a constant;
// then the weights of the units.
type network struct {
	hidden  int
	weights []float32
}

// unitSize returns the number of weights of a hidden unit.
func unitSize() int { return gateScalars + len(medianExperts()) + 1 }

// medianExperts returns the indexes of the experts that forecast the median.
func medianExperts() []int {
	var out []int
	for e, x := range experts() {
		if x.uses(0) {
			out = append(out, e)
		}
	}

	return out
}

// squash maps a sum of inputs to (-1, 1), so that the correction of a network is bounded by its output weights.
func squash(x float32) float32 { return x / (1 + max(x, -x)) }

// correct returns what is added to the log of the weight of an expert, given by its index in medianExperts, and sets the values of the
// hidden units.
func (n *network) correct(in *gateInputs, id int, units []float32) float32 {
	size := len(n.weights)/n.hidden - 1
	unitWeights := n.weights[n.hidden*size:]
	sum := float32(0)
	for j := range n.hidden {
		w := n.weights[j*size : (j+1)*size]
		v := w[gateScalars+id] + w[size-1]
		for k, x := range in {
			v += w[k] * x
		}

		units[j] = squash(v)
		sum += unitWeights[j] * units[j]
	}

	return sum
}

// weigh sets out to the weights that a network gives to the experts of the median, from those of the hedge.
func (n *network) weigh(hedge []float64, in []gateInputs, units []float32, out []float64) {
	highest := math.Inf(-1)
	for i, w := range hedge {
		out[i] = math.Log(w+1e-9) + float64(n.correct(&in[i], i, units))
		highest = max(highest, out[i])
	}

	sum := 0.0
	for i, v := range out {
		out[i] = math.Exp(v - highest)
		sum += out[i]
	}

	for i := range out {
		out[i] /= sum
	}
}

// applyGate sets the weights for the median to their mean with those of the networks, and to those of the hedge if there are too few replays or
// if an input is not finite, as for a series of zeros.
func (h *hedge) applyGate(t tuning, losses *segmentLosses, networks []network) {
	for s := range h.gated {
		h.gated[s] = h.weights[s][0]
	}

	in, ok := h.readGate(t, losses)
	if !ok || len(networks) == 0 {
		return
	}

	members := medianExperts()
	hedged := make([]float64, len(members))
	corrected := make([]float64, len(members))
	units := make([]float32, networks[0].hidden)

	// The hedge and the networks have half of the weight each.
	for s := range in {
		if in[s] == nil {
			continue
		}

		h.gated[s] = make([]float64, len(h.experts))
		for i, e := range members {
			hedged[i] = h.weights[s][0][e]
			h.gated[s][e] = hedged[i] / 2
		}

		for k := range networks {
			networks[k].weigh(hedged, in[s], units, corrected)
			for i, e := range members {
				h.gated[s][e] += corrected[i] / float64(2*len(networks))
			}
		}
	}
}

// readGate returns the inputs of the gate by segment, in the order of medianExperts, none for segments without slots; false where the gate
// cannot be used.
func (h *hedge) readGate(t tuning, losses *segmentLosses) ([segmentCount][]gateInputs, bool) {
	var out [segmentCount][]gateInputs
	if len(h.past[plainExpert]) < gateReplays {
		return out, false
	}

	members := medianExperts()
	mixed := make([]float32, h.h.slots)
	global := h.gateGlobals()
	for s := range out {
		from, to := h.bounds(s)
		if from >= to {
			continue
		}

		h.mixMedian(mixed, h.firstDay(), h.weights[s][0], from, to)
		out[s] = make([]gateInputs, len(members))
		h.gateInputs(t, losses, s, global, mixed, members, out[s])

		// The weight is an input of the networks; where it is no number, the hedge is used as it is.
		for i, e := range members {
			out[s][i][inWeight] = float32(max(-8, math.Log(10*h.weights[s][0][e]))) / 4
			if !out[s][i].finite() {
				return out, false
			}
		}
	}

	return out, true
}

// firstDay returns the forecasts of all experts of the first day.
func (o *outlook) firstDay() []profile {
	out := make([]profile, len(o.experts))
	for e, days := range o.days {
		out[e] = days[0]
	}

	return out
}

// gateGlobals returns the inputs that all experts and segments share.
func (o *outlook) gateGlobals() gateInputs {
	h := o.h
	floor := 0.01 * h.meanLevel()

	var in gateInputs
	in[inLevel] = logRatio(h.level[0], h.meanLevel(), floor, 2)
	in[inLate] = logRatio(h.late[0], h.late[1], floor, 2)

	// Each pair counts once; row 0 is the newest day.
	var older, newest float64

	var pairs, newestPairs int
	for a := range h.rows {
		for b := range a {
			switch d := h.distances[a*h.rows+b]; {
			case math.IsNaN(d):
			case b == 0:
				newest += d
				newestPairs++
			default:
				older += d
				pairs++
			}
		}
	}

	older /= float64(pairs)
	newest /= float64(newestPairs)

	in[inUnusual] = logRatio(newest, older, floor, 2)
	if h.rows > 7 && !math.IsNaN(h.distances[7]) {
		in[inWeekly] = logRatio(h.distances[7], newest, floor, 2)
	}

	return in
}

// meanLevel returns the mean of the levels of the rows that have samples.
func (h *dayRows) meanLevel() float64 {
	sum := 0.0
	n := 0
	for _, v := range h.level {
		if !math.IsNaN(v) {
			sum += v
			n++
		}
	}

	return sum / float64(n)
}

// logRatio returns the log of a ratio, within most, with a floor added to both.
func logRatio(a, b, floor, limit float64) float32 {
	return float32(min(limit, max(-limit, math.Log((a+floor)/(b+floor)))))
}

// gateInputs sets the inputs of the used experts in a segment; mixed is the forecast of the hedge.
func (o *outlook) gateInputs(t tuning, losses *segmentLosses, segment int, global gateInputs, mixed []float32, members []int, out []gateInputs) {
	from, to := o.bounds(segment)
	plain := losses[segment][0][plainExpert]
	mean := average(plain)
	level := o.h.meanLevel()
	perSlot := mean/float64(to-from) + 0.001*level

	global[inError] = logRatio(perSlot, level, 0, 4) / 2
	global[inNewestError] = logRatio(plain[0], mean, 0.1*mean, 2)
	if segment > 0 {
		global[inSegment+segment-1] = 1
	}

	// Sums over the day distinguish a bad hour from a bad expert.
	plainDay := make([]float64, len(plain))
	day := make([]float64, len(plain))
	losses.sumDay(plainExpert, plainDay)

	for i, e := range members {
		in := global
		losses.sumDay(e, day)
		in.setLosses(t, losses[segment][0][e], plain, day, plainDay)

		var shift, distance float64
		for x, v := range o.days[e][0][from:to] {
			d := float64(v - mixed[from+x])
			shift += d
			distance += math.Abs(d)
		}

		shift /= float64(to - from)
		distance /= float64(to - from)
		in[inShift] = float32(math.Asinh(shift / perSlot))
		in[inDistance] = float32(math.Asinh(distance / perSlot))
		in[inShiftLevel] = float32(math.Asinh(shift / level))
		out[i] = in
	}
}

// sumDay sets out to the losses of an expert of the median over all segments, by replay.
func (l *segmentLosses) sumDay(e int, out []float64) {
	clear(out)
	for s := range l {
		for i, v := range l[s][0][e] {
			out[i] += v
		}
	}
}

// setLosses sets the inputs that describe the losses of an expert in a segment and over the whole day.
func (in *gateInputs) setLosses(t tuning, losses, plain, day, plainDay []float64) {
	n := float64(len(plain))
	floor := t.floor * average(plain)
	dayFloor := t.floor * average(plainDay)

	var sum, squares, daySum, wins float64
	for i := range plain {
		v := t.clippedLog(losses[i]+floor, plain[i]+floor)
		d := t.clippedLog(day[i]+dayFloor, plainDay[i]+dayFloor)
		sum += v
		squares += v * v
		daySum += d

		if v < 0 {
			wins++
		}

		// The newest replay, and the mean of the newest three, have inputs of their own.
		switch i {
		case 0:
			in[inNewestLoss] = float32(2 * v)
			in[inNewestDay] = float32(2 * d)
		case 2:
			in[inNewLoss] = float32(4 * sum / 3)
		}
	}

	in[inMeanLoss] = float32(4 * sum / n)
	in[inDayLoss] = float32(4 * daySum / n)
	in[inLossSpread] = float32(2 * math.Sqrt(max(0, squares/n-sum*sum/n/n)))
	in[inWins] = float32(2*wins/n - 1)
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}

	return sum / float64(len(x))
}

// clippedLog returns the log of the loss of a day relative to plain, within its bounds; 0 where both are perfect on all days.
func (t tuning) clippedLog(loss, plain float64) float64 {
	ratio := math.Log(loss / plain)
	if math.IsNaN(ratio) {
		return 0
	}

	return min(t.maxLoss, max(-t.maxGain, ratio))
}

// The shape of gateWeights.
const (
	gateNetworks = 3
	gateUnits    = 16
)

// shippedGate returns the networks of gateWeights; none if these are not for the present experts.
func shippedGate() []network {
	perNetwork := gateUnits * (unitSize() + 1)
	if len(gateWeights) != gateNetworks*perNetwork {
		return nil
	}

	out := make([]network, gateNetworks)
	for k := range out {
		out[k] = network{hidden: gateUnits, weights: gateWeights[k*perNetwork : (k+1)*perNetwork]}
	}

	return out
}
