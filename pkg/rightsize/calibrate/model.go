// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/series"
)

// Model holds the past days of one container: sketches of its blocks, and the results of the multipliers. New returns an
// empty one. A Model is not safe for concurrent use.
type Model struct {
	settings Settings
	blocks   int
	// days are the last days with usage, in order, at most Window of them.
	days []*dayRecord
	// pods are the states of the reaction at the end of the last day.
	pods map[string]*podReplay
	// last is the last day that was added.
	last series.Day
}

// dayRecord is what is kept of a day.
type dayRecord struct {
	day series.Day
	// blocks holds the usage of each block and of its reach.
	blocks []*histogram.Counts
	// samples of all pods that were replayed; 0 if the days before it were too few.
	samples float64
	// above counts samples above the request, and requested sums the requests, by candidate.
	above, requested [candidateCount]float64
}

// The shapes that multipliers apply to. Usage without a cycle is cheaper to size by the whole day, whose quantile is steadier; usage whose
// level moves is cheaper to size by the newest days.
const (
	shapeBlocks = iota
	shapeWhole
	shapeNewest
	shapeCount
)

// candidateCount is the number of requests that a day is replayed with: each multiplier of each shape.
const candidateCount = shapeCount * multiplierCount

// podReplay is the state of the reaction for one pod.
type podReplay struct {
	recent Recent
	step   time.Duration
	raises [candidateCount]raise
}

// PodUsage is the usage of one pod on one day, in cores. Gaps, and infinite or negative values, are ignored.
type PodUsage struct {
	Pod    string
	Series series.Series
}

// New returns an empty model. The settings must be valid.
func New(s Settings) *Model {
	return &Model{settings: s, blocks: int(day / s.Block), pods: map[string]*podReplay{}}
}

// minReplay is the number of days before a day from which it is replayed.
const minReplay = 2

// AddDay adds the usage of a finished day and replays it, sized from the days before it. Days must be added in order; one that
// is not later than the last is ignored. Samples outside the day are ignored.
func (m *Model) AddDay(date series.Day, pods []PodUsage) {
	d, shape := m.begin(date)
	if d == nil {
		return
	}

	states := map[string]*podReplay{}
	counted := false
	for _, p := range pods {
		part := p.Series.Between(date.Start(), date.End())
		if part.Step <= 0 || len(part.Values) == 0 {
			continue
		}

		counted = d.sketch(part, m.settings) || counted
		if shape != nil {
			states[p.Pod] = m.replay(d, part, shape, m.pods[p.Pod])
		}
	}

	// A pod without usage on this day begins the next one without a raise.
	m.pods = states
	if counted {
		for i := range d.blocks {
			d.blocks[i].Compact()
		}
		m.days = append(m.days, d)
	}
}

// AddSketch adds a finished day by the sketch of its usage, which must not change afterward. It requires settings with one request
// a day. The order of samples matters to a reaction only, whose effect is a curve of the settings' reaction; where that is nil or does
// not know a request, nothing is raised.
func (m *Model) AddSketch(date series.Day, usage *histogram.Counts, curve *Curve) {
	d, shape := m.begin(date)
	if d == nil || usage.Total() == 0 {
		return
	}

	d.blocks[0] = usage
	m.days = append(m.days, d)

	// Without enough days before it the day is not replayed, but later plans use it.
	if shape == nil {
		return
	}

	d.samples = float64(usage.Total())
	requests := candidatesOf(shape)[0]
	for k := range m.candidates {
		request := requests[k]
		d.above[k] = usage.CountAbove(request)
		d.requested[k] = d.samples * request

		if m.settings.Reaction == nil || curve == nil {
			continue
		}

		if above, added, ok := curve.At(request); ok {
			d.above[k] = above
			d.requested[k] += added
		}
	}
}

// begin returns the record of a new day and the shape by which it is replayed; nil for a day that is not later than the last.
func (m *Model) begin(date series.Day) (*dayRecord, []float64) {
	if len(m.days) > 0 && date <= m.last {
		return nil, nil
	}

	m.forgetBefore(date)
	m.last = date

	d := &dayRecord{day: date, blocks: make([]*histogram.Counts, m.blocks)}
	for i := range d.blocks {
		d.blocks[i] = &histogram.Counts{}
	}

	return d, m.shape()
}

// forgetBefore drops the days that are too old for a plan of a day.
func (m *Model) forgetBefore(date series.Day) {
	first := date - series.Day(m.settings.Window)
	m.days = slices.DeleteFunc(m.days, func(d *dayRecord) bool { return d.day < first })
}

// sketch adds usage to the blocks and reports whether there was any.
func (d *dayRecord) sketch(s series.Series, settings Settings) (counted bool) {
	offset := s.Start.Sub(d.day.Start())
	for i, v := range s.Values {
		sinceMidnight := offset + time.Duration(i)*s.Step
		block := int(sinceMidnight / settings.Block)
		if !usable(v) || !d.blocks[block].Add(v) {
			continue
		}

		counted = true
		if settings.Reach == 0 {
			continue
		}

		sinceBlock := sinceMidnight - time.Duration(block)*settings.Block
		if sinceBlock < settings.Reach {
			d.blocks[(block+len(d.blocks)-1)%len(d.blocks)].Add(v)
		}
		if sinceBlock >= settings.Block-settings.Reach {
			d.blocks[(block+1)%len(d.blocks)].Add(v)
		}
	}

	return counted
}

// lowestShare is the share of the highest block that every block has at least.
const lowestShare = 0.001

// shape returns the quantile of each block over the days of the model, then that of the whole day, then that of the newest days; nil if
// there are too few days, or nothing was used. A block without usage has the highest quantile of the others, and one in which hardly
// anything was used a small share of it: usage that returns could not be distinguished from noise.
func (m *Model) shape() []float64 {
	if len(m.days) < minReplay {
		return nil
	}

	out := make([]float64, m.blocks+2)
	highest := 0.0
	var blockUsage, wholeDays, newestDays histogram.Histogram
	for i := range m.blocks {
		blockUsage.Reset()
		for k, d := range m.days {
			blockUsage.Add(d.blocks[i], 1)
			wholeDays.Add(d.blocks[i], 1)

			if k >= len(m.days)-m.settings.Newest {
				newestDays.Add(d.blocks[i], 1)
			}
		}

		out[i] = blockUsage.Quantile(float64(m.settings.Quantile))
		if usable(out[i]) {
			highest = max(highest, out[i])
		}
	}

	out[m.blocks] = wholeDays.Quantile(float64(m.settings.Quantile))
	out[m.blocks+1] = newestDays.Quantile(float64(m.settings.Quantile))

	if highest == 0 {
		return nil
	}

	// Multipliers need a base above zero in each block.
	for i, v := range out {
		if !usable(v) {
			out[i] = highest
		}
		out[i] = max(out[i], lowestShare*highest)
	}

	return out
}

// replay scores the usage of a pod with each multiplier and returns the state of its reaction at the end.
func (m *Model) replay(d *dayRecord, s series.Series, shape []float64, state *podReplay) *podReplay {
	if state == nil || state.step != s.Step {
		state = &podReplay{recent: NewRecent(s.Step), step: s.Step}
	}

	reaction := m.settings.Reaction
	lag := len(s.Values)
	if reaction != nil {
		lag = lagOf(reaction.Delay, s.Step)
	}

	midnight := d.day.Start()
	candidates := candidatesOf(shape)

	// A sample is known lag samples later, so the reaction to the last ones follows the end of the day.
	for i := range len(s.Values) + min(lag, len(s.Values)) {
		now := s.Time(i)
		block := min(int(now.Sub(midnight)/m.settings.Block), m.blocks-1)

		requests := &candidates[block]
		if i >= lag && reaction != nil {
			state.observe(now.UnixNano(), s.Values[i-lag], requests, reaction)
		}

		if i >= len(s.Values) || !usable(s.Values[i]) {
			continue
		}

		d.samples++
		for k := range m.candidates {
			request := state.raises[k].request(now.UnixNano(), requests[k])
			d.requested[k] += request
			if s.Values[i] > request {
				d.above[k]++
			}
		}
	}

	return state
}

// candidates calls a function with each candidate. The whole day is a shape of its own only beside shorter blocks.
func (m *Model) candidates(yield func(int) bool) {
	for k := range candidateCount {
		switch shape := k / multiplierCount; {
		case shape == shapeWhole && m.blocks == 1, shape == shapeNewest && m.settings.Newest == 0:
			continue
		}

		if !yield(k) {
			return
		}
	}
}

// candidatesOf returns the requests of all candidates for each block.
func candidatesOf(shape []float64) [][candidateCount]float64 {
	blocks := len(shape) - (shapeCount - 1)
	out := make([][candidateCount]float64, blocks)
	for i := range out {
		for k, f := range Multipliers() {
			out[i][k] = f * shape[i]
			for s := shapeWhole; s < shapeCount; s++ {
				out[i][s*multiplierCount+k] = f * shape[blocks+s-shapeWhole]
			}
		}
	}

	return out
}

// observe adds a sample for all candidates.
func (p *podReplay) observe(now int64, use float64, requests *[candidateCount]float64, reaction *Reaction) {
	p.recent.Add(use)
	if p.recent.count == 0 || !(use > min(requests[shapeBlocks], requests[shapeWhole*multiplierCount], requests[shapeNewest*multiplierCount])) {
		return // no candidate is exceeded
	}

	for k, planned := range requests {
		p.raises[k].observe(now, planned, &p.recent, reaction)
	}
}

// lagOf returns the number of samples after which one is known: at least one, since a sample covers the time of a step.
func lagOf(delay, step time.Duration) int { return max(1, int((delay+step-1)/step)) }

// Multipliers returns the multipliers in ascending order.
func Multipliers() [multiplierCount]float64 {
	var out [multiplierCount]float64
	for i := range out {
		out[i] = multiplier(i)
	}

	return out
}

func multiplier(i int) float64 {
	return highestMultiplier / math.Pow(multiplierStep, float64(multiplierCount-1-i))
}

// usable reports whether a value can be a usage.
func usable(v float64) bool { return v >= 0 && v <= math.MaxFloat32 }
