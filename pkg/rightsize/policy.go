// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// Method defines how usage becomes one number.
type Method string

// The methods. Each one uses the days of the window only.
const (
	// Percentile is a weighted quantile of all samples of the window. CPU only: a percentile of memory samples does not show
	// the peak at which a container is killed.
	Percentile Method = "percentile"
	// Envelope finds the best point in the upper tail of each day and covers most of the days: see EnvelopePolicy. CPU only.
	Envelope Method = "envelope"
	// Calibrated meets a target for the share of the time above the request in a replay of the container's own past days: see
	// package calibrate. CPU only.
	Calibrated Method = "calibrated"
)

// Policy defines how a container is sized. It is data: see PolicyByName, ParsePolicy and GocranePolicy.
type Policy struct {
	// Name is shown with the recommendation.
	Name string `json:"name"`
	// CPU and Memory define how each resource is sized.
	CPU    CPUPolicy    `json:"cpu"`
	Memory MemoryPolicy `json:"memory"`
	// MinHistory is the observed time below which no number is given; > 0. Nine tenths of it are enough, so that a
	// missed scrape does not cost a day.
	MinHistory time.Duration `json:"minHistory"`
	// Specifications are the only sizes allowed: the smallest one that fits CPU and memory is recommended. Empty allows any
	// size.
	Specifications Specifications `json:"specifications"`
}

// CPUPolicy defines how the CPU request and limit are computed.
type CPUPolicy struct {
	// Method is Percentile, Envelope or Calibrated.
	Method Method `json:"method"`
	// Percentile, 0 < p <= 1, is the quantile of all samples of the window; with Envelope, the lowest quantile of a day that
	// may be the point of that day.
	Percentile units.Ratio `json:"percentile"`
	// Window is the age up to which usage counts; a whole number of days, > 0.
	Window time.Duration `json:"window"`
	// HalfLife is the age at which a day has half its weight; 0 gives all days of the window the same weight.
	HalfLife time.Duration `json:"halfLife"`
	// Envelope defines how the days are covered; only with the method Envelope, and with Calibrated for histories that are too
	// short to be replayed.
	Envelope EnvelopePolicy `json:"envelope"`
	// Target is the share of the time that usage may exceed the request: 0.005 is 7 minutes a day. Only with the method
	// Calibrated.
	Target units.Ratio `json:"target"`
	// Margin is added: 0.15 is 15 %. >= 0.
	Margin units.Ratio `json:"margin"`
	// TargetUtilization divides: with 0.8 the estimate is 80 % of the request. 0 < u <= 1.
	TargetUtilization units.Ratio `json:"targetUtilization"`
	// Floor, Ceiling and Step bound and round up the request. Floor and Step > 0; Ceiling 0 means none.
	Floor   units.MilliCPU `json:"floor"`
	Ceiling units.MilliCPU `json:"ceiling"`
	Step    units.MilliCPU `json:"step"`
	// Limit defines the limit.
	Limit LimitPolicy `json:"limit"`
}

// EnvelopePolicy defines how the days of the window become one number. Each day has a point in its upper tail: from its
// maximum down to CPUPolicy.Percentile, the value v that is cheapest in slack(v) + ViolationPrice*violation(v), where
// slack is 1 - mean usage/v and violation the share of the day above v. Where the tail is thin the point is near the
// percentile, where a little more request avoids much it is near the maximum; values of nearly the same cost contribute to
// it (see tailPoint). The days are covered by a quantile of their points, so that a single day does not decide.
type EnvelopePolicy struct {
	// ViolationPrice is the number of points of slack that one point of violation is worth; >= 0, with 0 the point is always
	// the percentile.
	ViolationPrice float64 `json:"violationPrice"`
	// Cover, 0 < c <= 1, is the share of the weight of the days whose points the result must cover; 1 is the highest.
	Cover units.Ratio `json:"cover"`
	// SpreadMargin times the spread of the days' points (see spread) is added to Margin; MaxMargin bounds the sum.
	SpreadMargin units.Ratio `json:"spreadMargin"`
	MaxMargin    units.Ratio `json:"maxMargin"`
	// HoldMean makes the result cover the mean of every day, margin included: the work of a day then fits into the day, if
	// later, even where Cover leaves that day out.
	HoldMean bool `json:"holdMean"`
	// Recent, 0 <= r < 1, is a quantile of the last day that the result must cover, margin included: a shift of usage to a
	// higher level is followed the next day. 0 turns it off.
	Recent units.Ratio `json:"recent"`
}

// MemoryPolicy defines how the memory request and limit are computed, always from daily maxima.
type MemoryPolicy struct {
	// Percentile, 0 < p <= 1, of the daily maxima; 1 is the largest.
	Percentile units.Ratio `json:"percentile"`
	// Window, HalfLife, Margin and TargetUtilization are as for CPU.
	Window            time.Duration `json:"window"`
	HalfLife          time.Duration `json:"halfLife"`
	Margin            units.Ratio   `json:"margin"`
	TargetUtilization units.Ratio   `json:"targetUtilization"`
	// TailMargin times the spread of the upper half of the daily maxima (see tailSpread) is added to Margin; MaxMargin bounds
	// the sum if it exceeds Margin. Memory that peaks at the same level every day needs a smaller margin.
	TailMargin units.Ratio `json:"tailMargin"`
	MaxMargin  units.Ratio `json:"maxMargin"`
	// Floor, Ceiling and Step bound and round up the request. Floor and Step > 0; Ceiling 0 means none.
	Floor   units.Bytes `json:"floor"`
	Ceiling units.Bytes `json:"ceiling"`
	Step    units.Bytes `json:"step"`
	// Limit defines the limit.
	Limit LimitPolicy `json:"limit"`
	// OOM defines what an out-of-memory kill adds.
	OOM OOMPolicy `json:"oom"`
	// PageCache defines how page cache counts, if the source of history reports it.
	PageCache PageCachePolicy `json:"pageCache"`
}

// OOMPolicy defines how out-of-memory kills raise memory. A kill at m requires max(m*Ratio, m+MinBump), the part above the
// estimate halves with every HalfLife, and all kills together never require more than Cap times the larger of the estimate
// and the lowest memory that was killed within the Window. The request is never below the memory of a kill in the Window.
type OOMPolicy struct {
	// Enabled turns the rule on.
	Enabled bool `json:"enabled"`
	// Ratio >= 1, MinBump >= 0, Cap >= Ratio.
	Ratio   units.Ratio `json:"ratio"`
	MinBump units.Bytes `json:"minBump"`
	Cap     units.Ratio `json:"cap"`
	// Window is the age up to which a kill counts. HalfLife is the age at which it counts half; 0 means that it counts in
	// full until the window ends.
	Window   time.Duration `json:"window"`
	HalfLife time.Duration `json:"halfLife"`
}

// LimitMode defines the limit.
type LimitMode string

// The limit modes.
const (
	// LimitNone recommends no limit.
	LimitNone LimitMode = "none"
	// LimitKeep keeps the current limit, raised to the request if necessary.
	LimitKeep LimitMode = "keep"
	// LimitKeepRatio keeps the current ratio of limit to request; a container without a limit stays without. Beyond a ratio
	// of 10, or without a current request, it is LimitKeep.
	LimitKeepRatio LimitMode = "keep-ratio"
	// LimitEqual sets the limit to the request.
	LimitEqual LimitMode = "equal-to-request"
	// LimitHeadroom sets the limit to (1+Headroom) times the request.
	LimitHeadroom LimitMode = "headroom"
)

// LimitPolicy is a mode and, for LimitHeadroom, its headroom.
type LimitPolicy struct {
	Mode LimitMode `json:"mode"`
	// Headroom >= 0: 0.5 makes the limit one and a half times the request.
	Headroom units.Ratio `json:"headroom"`
}

// Specification is an allowed size.
type Specification struct {
	CPU    units.MilliCPU
	Memory units.Bytes
}

// Validate returns everything that is wrong with the policy, joined, each a *settings.FieldError; nil if it is valid.
func (p Policy) Validate() error { return p.problems().Err() }

func (p Policy) problems() settings.Errors {
	v := &validator{}
	v.Check(p.MinHistory > 0, "minHistory", p.MinHistory, "must be above zero")

	cpu := p.CPU
	v.Check(slices.Contains([]Method{Percentile, Envelope, Calibrated}, cpu.Method), "cpu.method", cpu.Method, "must be percentile, envelope or calibrated")
	v.target(cpu)
	v.share("cpu.percentile", cpu.Percentile)
	v.envelope(cpu)
	v.window("cpu", cpu.Window, cpu.HalfLife)

	v.margin("cpu.margin", cpu.Margin)
	v.share("cpu.targetUtilization", cpu.TargetUtilization)
	checkBounds(v, "cpu", cpu.Floor, cpu.Ceiling, cpu.Step)
	v.limit("cpu.limit", cpu.Limit)

	mem := p.Memory
	v.share("memory.percentile", mem.Percentile)
	v.window("memory", mem.Window, mem.HalfLife)
	v.margin("memory.margin", mem.Margin)
	v.Check(mem.TailMargin >= 0 && mem.TailMargin <= 100, "memory.tailMargin", mem.TailMargin, "must be 0 to 100")
	v.Check(mem.MaxMargin >= 0 && mem.MaxMargin <= 10, "memory.maxMargin", mem.MaxMargin, "must be 0 to 10")

	v.share("memory.targetUtilization", mem.TargetUtilization)
	checkBounds(v, "memory", mem.Floor, mem.Ceiling, mem.Step)
	v.limit("memory.limit", mem.Limit)
	v.Check(mem.PageCache.LeaveOut >= 0 && mem.PageCache.LeaveOut <= 1, "memory.pageCache.leaveOut", mem.PageCache.LeaveOut, "must be 0 to 1 (0.5 is half of it)")

	if oom := mem.OOM; oom.Enabled {
		v.Check(oom.Ratio >= 1 && oom.Ratio <= 10, "memory.oom.ratio", oom.Ratio, "must be 1 to 10")
		v.Check(oom.MinBump >= 0, "memory.oom.minBump", oom.MinBump, "must not be below zero")
		v.Check(oom.Cap >= oom.Ratio, "memory.oom.cap", oom.Cap, "must be at least memory.oom.ratio")
		v.Check(oom.Window > 0, "memory.oom.window", oom.Window, "must be above zero")
		v.Check(oom.HalfLife >= 0, "memory.oom.halfLife", oom.HalfLife, "must not be below zero")
	}

	for i, s := range p.Specifications {
		v.Check(s.CPU > 0 && s.Memory > 0, fmt.Sprintf("specifications[%d]", i), s, "CPU and memory must be above zero")
	}

	return v.Errors
}

// validator collects the errors of a policy.
type validator struct{ settings.Errors }

func (v *validator) share(path string, r units.Ratio) {
	v.Check(r > 0 && r <= 1, path, r, "must be above 0 and at most 1")
}

func (v *validator) margin(path string, r units.Ratio) {
	v.Check(r >= 0 && r <= 10, path, r, "must be 0 to 10 (0.15 is 15 %)")
}

// checkBounds checks the floor, the ceiling and the step of the request of a resource.
func checkBounds[T units.MilliCPU | units.Bytes](v *validator, resource string, floor, ceiling, step T) {
	v.Check(floor > 0, resource+".floor", floor, "must be above zero: a request of zero is never recommended")
	v.Check(step > 0, resource+".step", step, "must be above zero")
	v.Check(ceiling == 0 || ceiling >= floor, resource+".ceiling", ceiling, "must be 0 (none) or at least the floor")
}

func (v *validator) envelope(cpu CPUPolicy) {
	e := cpu.Envelope
	if cpu.Method == Percentile {
		v.Check(e == EnvelopePolicy{}, "cpu.envelope", e, "contradicts the method: percentile has none")
		return
	}

	v.Check(e.ViolationPrice >= 0 && e.ViolationPrice <= 1000, "cpu.envelope.violationPrice", e.ViolationPrice, "must be 0 to 1000")
	v.share("cpu.envelope.cover", e.Cover)
	v.Check(e.SpreadMargin >= 0 && e.SpreadMargin <= 10, "cpu.envelope.spreadMargin", e.SpreadMargin, "must be 0 to 10")
	v.Check(e.MaxMargin >= cpu.Margin && e.MaxMargin <= 10, "cpu.envelope.maxMargin", e.MaxMargin, "must be cpu.margin to 10")
	v.Check(e.Recent >= 0 && e.Recent < 1, "cpu.envelope.recent", e.Recent, "must be 0 (off) or below 1")
}

func (v *validator) target(cpu CPUPolicy) {
	if cpu.Method != Calibrated {
		v.Check(cpu.Target == 0, "cpu.target", cpu.Target, "contradicts the method: only calibrated has one")
		return
	}

	calibrate.CheckTarget(&v.Errors, "cpu.target", cpu.Target)
	minWindow := time.Duration(calibrate.ConstantSettings().MinDays) * day
	v.Check(cpu.Window >= minWindow, "cpu.window", cpu.Window, "must be 7d or more with the method calibrated")
	v.Check(cpu.HalfLife == 0, "cpu.halfLife", cpu.HalfLife, "contradicts the method: calibrated counts all days the same")
}

func (v *validator) window(resource string, window, halfLife time.Duration) {
	const day = 24 * time.Hour
	v.Check(window >= day && window <= 366*day && window%day == 0, resource+".window", window, "must be a whole number of days, 1d to 366d")
	v.Check(halfLife >= 0, resource+".halfLife", halfLife, "must not be below zero; 0 means that all days count the same")
}

func (v *validator) limit(path string, l LimitPolicy) {
	modes := []LimitMode{LimitNone, LimitKeep, LimitKeepRatio, LimitEqual, LimitHeadroom}
	v.Check(slices.Contains(modes, l.Mode), path+".mode", l.Mode, "must be one of "+joinModes(modes))
	v.Check(l.Headroom >= 0 && l.Headroom <= 100, path+".headroom", l.Headroom, "must be 0 to 100 (0.5 is 50 %)")
	v.Check(l.Mode == LimitHeadroom || l.Headroom == 0, path+".headroom", l.Headroom, "contradicts the mode: only headroom has one")
}

func joinModes(modes []LimitMode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}

	return strings.Join(names, ", ")
}
