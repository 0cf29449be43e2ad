// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math"

	"crane.io/crane/pkg/forecast"
)

const (
	// maxLevels is the number of requests that are tried in each hour.
	maxLevels = 72
	// minRatio is the smallest ratio of two adjacent levels.
	minRatio = 1.025
	// maxInitialRisk is the largest share of time above the constant request from which the linearisation starts.
	maxInitialRisk = 0.05
	// minMeanRequest is the smallest mean request around which slack is linearised, as a multiple of the usage.
	minMeanRequest = 1.2
	// maxIterations is the number of times that slack is linearised around the previous plan.
	maxIterations = 3
)

// optimiser finds the cheapest schedule by dynamic programming over hours, requests and the number of changes so far. It is
// exact on its grid of requests.
type optimiser struct {
	cells    []cell
	previous float64
	settings Settings

	levels []float64
	// risks are by hour and level.
	risks [][]float64
}

// run returns a request for each cell.
func (o *optimiser) run() []float64 {
	use := 0.0
	for _, c := range o.cells {
		use += c.weight * c.median
	}

	o.grid()
	if len(o.levels) == 0 {
		return make([]float64, len(o.cells)) // the forecast is zero
	}

	// Slack is concave in the request, so that a wasteful plan can be a local optimum: start at both ends.
	lean, leanCost := o.converge(use, minMeanRequest*use)

	safe, safeCost := o.converge(use, o.constant(use))
	if leanCost <= safeCost {
		return lean
	}

	return safe
}

// converge repeats the linearisation around the resulting plan until the plan stays the same, and returns it with its cost.
func (o *optimiser) converge(use, around float64) (requests []float64, cost float64) {
	for range maxIterations {
		if around <= 0 {
			around = o.levels[len(o.levels)-1]
		}

		path := o.cheapest(use, around)
		sum := 0.0

		last := o.previous
		requests = make([]float64, len(o.cells))
		cost = 0
		for i, k := range path {
			requests[i] = o.levels[k]
			sum += o.cells[i].weight * requests[i]

			cost += o.settings.Price * o.cells[i].weight * o.risks[i][k]
			if last > 0 && math.Abs(requests[i]/last-1) > 1e-9 {
				cost += o.settings.ChangeCost
			}

			last = requests[i]
		}

		cost -= use / max(sum, minMeanRequest*use)
		if math.Abs(sum-around) < 1e-3*around {
			break
		}

		around = max(sum, minMeanRequest*use)
	}

	return requests, cost
}

// grid computes the levels, ascending by a constant ratio: from the lowest median to the end of the tail of the highest
// hour. The previous request is one of them, so that it may stay.
func (o *optimiser) grid() {
	lowest := math.Inf(1)
	highest := 0.0
	for _, c := range o.cells {
		for _, s := range c.steps {
			lowest = min(lowest, s.quantiles[0])
			highest = max(highest, s.quantiles[forecast.NumLevels-1]+4*s.scale)
		}
	}

	if highest <= 0 && o.previous <= 0 {
		return
	}

	lowest = min(lowest, highest)
	if o.previous > 0 {
		lowest = min(lowest, o.previous)
		highest = max(highest, o.previous)
	}

	// Far below the peak there is almost no slack left to save.
	highest = min(highest, forecast.MaxValue)

	lowest = max(lowest, highest/500)
	ratio := max(minRatio, math.Pow(highest/lowest, 1/float64(maxLevels-2)))
	anchor := lowest
	if o.previous >= lowest && o.previous <= highest {
		anchor = o.previous
		for anchor/ratio >= lowest {
			anchor /= ratio
		}
	}

	for v := anchor; len(o.levels) < maxLevels; v *= ratio {
		if o.previous > 0 && math.Abs(v/o.previous-1) < 1e-9 {
			v = o.previous // exactly, so that staying is no change
		}

		o.levels = append(o.levels, v)
		if v >= highest {
			break
		}
	}

	o.risks = make([][]float64, len(o.cells))
	for i := range o.cells {
		o.risks[i] = make([]float64, len(o.levels))
		for k, v := range o.levels {
			o.risks[i][k] = o.cells[i].risk(v)
		}
	}
}

// constant returns the cheapest request that never changes, from which the linearisation starts. Requests that are exceeded
// for more than maxInitialRisk of the time are excluded: slack rewards them without bound below the mean usage.
func (o *optimiser) constant(use float64) float64 {
	best := o.levels[len(o.levels)-1]
	cheapest := math.Inf(1)
	for k, v := range o.levels {
		risk := 0.0
		for i, c := range o.cells {
			risk += c.weight * o.risks[i][k]
		}

		if cost := o.settings.Price*risk - use/v; risk <= maxInitialRisk && cost < cheapest {
			best = v
			cheapest = cost
		}
	}

	return best
}

// state is a path to a level in an hour.
type state struct {
	cost float64
	from int32
}

// cheapest returns the level of each hour. Slack is 1 - use/R with the mean request R; around a mean R0 it grows by use/R0 x
// dR/R0, which is a sum over hours.
func (o *optimiser) cheapest(use, around float64) []int {
	n := len(o.cells)
	k := len(o.levels)
	c := o.settings.Changes + 1
	states := make([]state, n*c*k)
	at := func(hour, changes int) []state { return states[(hour*c+changes)*k : (hour*c+changes+1)*k] }

	slope := use / around / around
	if use <= 0 {
		slope = 1 / around
	}

	for hour := range n {
		for changes := range c {
			row := at(hour, changes)
			var stay, move []state
			if hour > 0 {
				stay = at(hour-1, changes)
				if changes > 0 {
					move = at(hour-1, changes-1)
				}
			}

			for level := range row {
				s := o.cheapestTransition(hour, changes, level, stay, move)
				s.cost += o.cells[hour].weight * (slope*o.levels[level] + o.settings.Price*o.risks[hour][level])
				row[level] = s
			}
		}
	}

	return o.tracePath(at, n, c)
}

// cheapestTransition returns the cheapest path to a level at the start of an hour.
func (o *optimiser) cheapestTransition(hour, changes, level int, stay, move []state) state {
	if hour == 0 {
		return o.first(changes, level)
	}

	best := state{cost: stay[level].cost, from: int32(level)}
	for from := range move {
		if cost := move[from].cost + o.settings.ChangeCost; cost < best.cost && o.isAllowedChange(o.levels[from], o.levels[level]) {
			best = state{cost: cost, from: int32(from)}
		}
	}

	return best
}

// first returns the path from the previous request to the first hour.
func (o *optimiser) first(changes, level int) state {
	v := o.levels[level]
	switch {
	case o.previous == 0, math.Abs(v/o.previous-1) < 1e-9:
		if changes == 0 {
			return state{}
		}
	case changes == 1 && o.isAllowedChange(o.previous, v):
		return state{cost: o.settings.ChangeCost}
	case changes == 0 && o.settings.Changes == 0:
		return state{}
	}

	return state{cost: math.Inf(1)}
}

// isAllowedChange reports whether one planned change may go from one request to another: up by any material step, down by a
// material step within the largest drop.
func (o *optimiser) isAllowedChange(from, to float64) bool {
	const rounding = 1e-9
	ratio := to / from
	if ratio >= 1 {
		return ratio >= 1+float64(o.settings.MinMove)-rounding
	}

	return ratio <= 1-float64(o.settings.MinMove)+rounding && ratio >= 1-float64(o.settings.MaxDrop)-rounding
}

// tracePath returns the cheapest path back from the last hour.
func (o *optimiser) tracePath(at func(hour, changes int) []state, n, c int) []int {
	changes := 0
	level := len(o.levels) - 1
	best := math.Inf(1)
	for i := range c {
		for j, s := range at(n-1, i) {
			if s.cost < best {
				changes = i
				level = j
				best = s.cost
			}
		}
	}

	path := make([]int, n)
	for hour := n - 1; hour >= 0; hour-- {
		path[hour] = level
		from := int(at(hour, changes)[level].from)
		if hour > 0 && from != level {
			changes--
		}

		level = from
	}

	return path
}
