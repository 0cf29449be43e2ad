// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"math"
	"time"

	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

const (
	// CurrentSetting is the name of the outcome of the current requests.
	CurrentSetting = "today"
	// materialChange is the relative change from which a decision counts as changed: a smaller one would not be applied.
	materialChange = 0.10
	// peerHistory is the history that all peers need for their first decision, in days.
	peerHistory = 7
)

// Evidence is the result of replaying a policy over the history of a container.
type Evidence struct {
	CPU    Replay `json:"cpu"`
	Memory Replay `json:"memory"`
}

// Replay is the evidence for one resource. Each day from From to To was decided at midnight UTC from the days before it, and
// then compared with its usage. Without such a day, Days is 0 and the rest is empty.
type Replay struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	Days int    `json:"days"`
	// Outcomes holds the policy, the current setting (if there is one) and the peers.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Curve is the result of other quantiles of the past window, without margin.
	Curve []CurvePoint `json:"curve,omitempty"`
}

// Outcome is the result of one way of sizing over the days of a replay.
type Outcome struct {
	Policy string `json:"policy"`
	// Slack is 1 - usage/request; negative if the total usage exceeds the requests.
	Slack units.Ratio `json:"slack"`
	// Violation is the share of the time with usage above the request.
	Violation units.Ratio `json:"violation"`
	// Overrun is the usage above the request as a share of the usage; without the reaction, if there is one.
	Overrun units.Ratio `json:"overrun"`
	// Throttled is the share of the time with usage above the limit; CPU only, and absent without a limit.
	Throttled *units.Ratio `json:"throttled,omitempty"`
	// OOMDays is the number of days with usage above the limit; memory only, without reclaimable page cache.
	OOMDays *int `json:"oomDays,omitempty"`
	// Changes is the mean number of changes of the request by more than 10 % per day.
	Changes float64 `json:"changes"`
	// Request is the mean request, in cores or bytes.
	Request float64 `json:"request"`
}

// CurvePoint is one point of the curve of slack over violation.
type CurvePoint struct {
	Quantile  units.Ratio `json:"quantile"`
	Slack     units.Ratio `json:"slack"`
	Violation units.Ratio `json:"violation"`
	// Request is the request on the last day, in cores or bytes.
	Request float64 `json:"request"`
}

// sizes is a request and its limit (0: none) for one day, in cores or bytes; a request of 0 is no decision.
type sizes struct {
	request, limit float64
	// reaction is the effect of raises within that day; nil if there are none.
	reaction *calibrate.Curve
}

// CollectEvidence replays a policy, the current setting and the peers over the history of the input. All are compared over
// the same days: those with a number of the policy and seven days of usage before them. The comparison uses the sketches of
// the days, so shares are exact to the width of a bucket (1.6 %).
func CollectEvidence(in Input, p Policy) Evidence {
	days := windowDays(in.Profile, in.Now, 366*day)
	cpu := resourceReplay{
		unit:   Cores,
		counts: cpuCounts,
		window: p.CPU.Window,
		policy: p.Name,
	}

	memory := resourceReplay{
		unit:   BytesUnit,
		counts: memoryCounts,
		window: p.Memory.Window,
		policy: p.Name,
	}

	cpu.current = sizes{request: floatOf(in.Current.CPURequest) / 1000, limit: floatOf(in.Current.CPULimit) / 1000}
	memory.current = sizes{request: floatOf(in.Current.MemoryRequest), limit: floatOf(in.Current.MemoryLimit)}

	// Each day is decided as it would have been at its midnight: Recommend ignores later usage.
	past := in
	for i, d := range days {
		if i < peerHistory {
			continue
		}

		past.Now = d.Day.Start()
		r := Recommend(past, p)
		if r.CPU.Status == Ready && d.CPU.Total() > 0 {
			decision := sizes{request: floatOf(r.Target.CPURequest) / 1000, limit: floatOf(r.Target.CPULimit) / 1000}
			if r.CPU.Calibration != nil && r.CPU.Calibration.Reaction {
				decision.reaction = d.Reaction
			}

			cpu.add(d, decision)
		}

		if r.Memory.Status == Ready && d.Memory.Total() > 0 {
			limit := floatOf(r.Target.MemoryLimit)
			if limit == 0 {
				// Without a limit the memory of the node is the limit; the container can only rely on its request.
				limit = floatOf(r.Target.MemoryRequest)
			}

			memory.add(d, sizes{request: floatOf(r.Target.MemoryRequest), limit: limit})
		}
	}

	return Evidence{CPU: cpu.replay(in.Profile), Memory: memory.replay(in.Profile)}
}

// resourceReplay holds the days and decisions of one resource.
type resourceReplay struct {
	unit    Unit
	counts  func(*Day) *histogram.Counts
	window  time.Duration
	policy  string
	current sizes
	days    []*Day
	sizes   []sizes
}

func (r *resourceReplay) add(d *Day, decision sizes) {
	r.days = append(r.days, d)
	r.sizes = append(r.sizes, decision)
}

// replay compares all ways of sizing with the days.
func (r *resourceReplay) replay(p *Profile) Replay {
	if len(r.days) == 0 {
		return Replay{}
	}

	out := Replay{From: r.days[0].Day.String(), To: r.days[len(r.days)-1].Day.String(), Days: len(r.days)}
	out.Outcomes = append(out.Outcomes, r.score(r.policy, func(i int) sizes { return r.sizes[i] }))
	if r.current.request > 0 {
		current := r.current
		if r.unit == BytesUnit && current.limit == 0 { // As in CollectEvidence.
			current.limit = current.request
		}

		out.Outcomes = append(out.Outcomes, r.score(CurrentSetting, func(int) sizes { return current }))
	}

	for _, peer := range Peers() {
		out.Outcomes = append(out.Outcomes, r.score(peer.Name, func(i int) sizes {
			now := r.days[i].Day.Start()
			if r.unit == BytesUnit {
				need := peer.Memory(windowDays(p, now, peer.Window), now)
				return sizes{request: need, limit: need}
			}

			return sizes{request: peer.CPU(windowDays(p, now, peer.Window), now)}
		}))
	}

	out.Curve = r.curve(p)
	return out
}

// score compares one way of sizing with the days.
func (r *resourceReplay) score(name string, decide func(i int) sizes) Outcome {
	t := replayStats{}
	for i, d := range r.days {
		t.addDay(r.counts(d), r.peak(d), decide(i))
	}

	return t.outcome(name, r.unit)
}

// replayStats sums the days of a replay.
type replayStats struct {
	use, requested, excess     float64
	samples, above, aboveLimit float64
	limited                    bool
	days, changes, oomDays     int
	last                       float64
}

// peak returns the maximum that counts against a limit: the kernel reclaims page cache before it kills.
func (r *resourceReplay) peak(d *Day) float64 {
	if r.unit == BytesUnit && d.ReclaimBasis == WithoutActiveFile {
		return d.requiredPeak(1, nil)
	}

	return r.counts(d).Max()
}

func (t *replayStats) addDay(c *histogram.Counts, peak float64, decision sizes) {
	if !(decision.request > 0) || math.IsInf(decision.request, 0) {
		return
	}

	n := float64(c.Total())
	overSamples, excess := c.Above(decision.request)

	// The curve has the effect of raises within the day, and what they add to the request.
	if decision.reaction != nil {
		if reactedAbove, added, ok := decision.reaction.At(decision.request); ok {
			overSamples = reactedAbove
			t.requested += added
		}
	}

	t.use += c.Sum()
	t.requested += n * decision.request
	t.samples += n
	t.above += overSamples

	t.excess += excess
	t.days++
	if decision.limit > 0 {
		t.limited = true
		aboveLimit, _ := c.Above(decision.limit)

		t.aboveLimit += aboveLimit
		if peak > decision.limit {
			t.oomDays++
		}
	}

	if t.last > 0 && math.Abs(decision.request/t.last-1) > materialChange {
		t.changes++
	}
	t.last = decision.request
}

func (t *replayStats) outcome(name string, unit Unit) Outcome {
	o := Outcome{Policy: name}
	if t.samples == 0 || t.requested == 0 {
		return o
	}

	o.Slack = units.Ratio(1 - t.use/t.requested)
	o.Violation = units.Ratio(t.above / t.samples)
	if t.use > 0 {
		o.Overrun = units.Ratio(t.excess / t.use)
	}

	if t.limited && unit == Cores {
		throttled := units.Ratio(t.aboveLimit / t.samples)
		o.Throttled = &throttled
	}

	if unit == BytesUnit {
		o.OOMDays = &t.oomDays
	}

	o.Changes = float64(t.changes) / float64(t.days)
	o.Request = t.requested / t.samples
	return o
}

// curve replays quantiles of the past window.
func (r *resourceReplay) curve(p *Profile) []CurvePoint {
	quantiles := [...]float64{0.5, 0.66, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1}
	var stats [len(quantiles)]replayStats
	h := histogram.Histogram{}

	// Each quantile of the window before a day is the request of that day.
	for _, d := range r.days {
		h.Reset()
		for _, past := range windowDays(p, d.Day.Start(), r.window) {
			h.Add(r.counts(past), 1)
		}

		for i, q := range quantiles {
			stats[i].addDay(r.counts(d), r.peak(d), sizes{request: h.Quantile(q)})
		}
	}

	curve := make([]CurvePoint, 0, len(quantiles))
	for i, q := range quantiles {
		if stats[i].days == 0 {
			continue
		}

		o := stats[i].outcome("", r.unit)
		curve = append(curve, CurvePoint{
			Quantile:  units.Ratio(q),
			Slack:     o.Slack,
			Violation: o.Violation,
			Request:   stats[i].last,
		})
	}

	return curve
}
