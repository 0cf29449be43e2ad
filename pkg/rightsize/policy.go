// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// Method says how use becomes one number.
type Method string

// The methods. Each one looks at the days of the window only.
const (
	// Percentile is a weighted quantile of all samples of the window together. CPU only: a percentile of memory
	// samples says nothing about the peak that kills.
	Percentile Method = "percentile"
	// Envelope finds the best point in the upper tail of each day and covers most of the days: see CPUPolicy. CPU only.
	Envelope Method = "envelope"
	// Maxima is a weighted quantile of block maxima: of the largest sample of each day. Memory only.
	Maxima Method = "maxima"
)

// Policy says how to size a container. It is data: see PolicyByName, ParsePolicy and GocranePolicy.
type Policy struct {
	// Name is shown with the recommendation.
	Name string
	// CPU and Memory say how each resource is sized.
	CPU    CPUPolicy
	Memory MemoryPolicy
	// MinHistory is the observed time below which no number is given; > 0. Nine tenths of it are enough, so that a
	// scrape that was missed does not cost a day.
	MinHistory time.Duration
	// Specifications are the only sizes allowed; the smallest that holds CPU and memory is taken. Empty: any size.
	Specifications []Specification
}

// CPUPolicy says how the CPU request and limit are found.
type CPUPolicy struct {
	// Method is Percentile or Envelope.
	Method Method
	// Percentile, 0 < p <= 1: of all samples of the window; with Envelope, the lowest quantile of a day that may be
	// that day's point.
	Percentile series.Ratio
	// Window is how far back use counts; a whole number of days, > 0.
	Window time.Duration
	// HalfLife is the age at which a day counts half; 0 means that all days of the window count the same.
	HalfLife time.Duration
	// Envelope says how the days are covered; only with the method Envelope.
	Envelope EnvelopePolicy
	// Margin is added: 0.15 is 15 %. >= 0.
	Margin series.Ratio
	// TargetUtilization divides: 0.8 means that the estimate shall be 80 % of the request. 0 < u <= 1.
	TargetUtilization series.Ratio
	// Floor, Ceiling and Step bound and round (up) the request. Floor and Step > 0; Ceiling 0 means none.
	Floor, Ceiling, Step series.MilliCPU
	// Limit says what becomes of the limit.
	Limit LimitPolicy
}

// EnvelopePolicy says how the days of the window become one number. Each day has a point in its upper tail: from its
// maximum down to CPUPolicy.Percentile, the value v that is cheapest in slack(v) + ViolationPrice*violation(v), where
// slack is 1 - mean use/v and violation the share of the day above v. Where the tail is thin the point is near the
// percentile, where a little more request avoids much it is near the maximum; values that cost nearly the same have a
// part in it (see tailPoint). The days are covered by a quantile of their points, so that a single day does not decide.
type EnvelopePolicy struct {
	// ViolationPrice is how many points of slack one point of violation is worth; >= 0, 0 always takes the percentile.
	ViolationPrice float64
	// Cover, 0 < c <= 1, is the share of the weight of the days whose points the result must hold; 1 is the highest.
	Cover series.Ratio
	// SpreadMargin times the spread of the days' points (see spread) is added to Margin; MaxMargin bounds the sum.
	SpreadMargin, MaxMargin series.Ratio
	// HoldMean makes the result hold the mean of every day, margin included: what a day asks for can be done within it,
	// if later, even where Cover leaves that day out.
	HoldMean bool
	// Recent, 0 <= r < 1, is a quantile of the last day that the result must hold, margin included: use that has moved
	// to a higher level is followed the next day. 0 turns it off.
	Recent series.Ratio
}

// MemoryPolicy says how the memory request and limit are found. The method is always Maxima.
type MemoryPolicy struct {
	// Percentile, 0 < p <= 1, of the daily maxima; 1 is the largest.
	Percentile series.Ratio
	// Window, HalfLife, Margin and TargetUtilization: as for CPU.
	Window            time.Duration
	HalfLife          time.Duration
	Margin            series.Ratio
	TargetUtilization series.Ratio
	// TailMargin times the spread of the upper half of the daily maxima (see tailSpread) is added to Margin; MaxMargin,
	// where it is more than Margin, bounds the sum. Memory that peaks alike every day needs less on top.
	TailMargin, MaxMargin series.Ratio
	// Floor, Ceiling and Step bound and round (up) the request. Floor and Step > 0; Ceiling 0 means none.
	Floor, Ceiling, Step series.Bytes
	// Limit says what becomes of the limit.
	Limit LimitPolicy
	// OOM says what an out-of-memory kill adds.
	OOM OOMPolicy
	// PageCache says what becomes of page cache, where it is told from the rest.
	PageCache PageCachePolicy
}

// OOMPolicy says how out-of-memory kills raise memory. A kill at m asks for max(m*Ratio, m+MinBump), its part above the
// estimate halves with every HalfLife, and all of them never ask for more than Cap times the larger of the estimate and
// the lowest memory that was killed within the Window.
type OOMPolicy struct {
	// Enabled turns the rule on.
	Enabled bool
	// Ratio >= 1, MinBump >= 0, Cap >= Ratio.
	Ratio   series.Ratio
	MinBump series.Bytes
	Cap     series.Ratio
	// Window is how long a kill counts; HalfLife how fast it fades, 0 means not before the window ends.
	Window, HalfLife time.Duration
}

// LimitMode says what becomes of a limit.
type LimitMode string

// The limit modes.
const (
	// LimitNone recommends to have no limit.
	LimitNone LimitMode = "none"
	// LimitKeep leaves the limit of today as it is, raised to the request where it would be below.
	LimitKeep LimitMode = "keep"
	// LimitKeepRatio keeps the ratio of limit to request that the container has today; no limit stays no limit, and
	// beyond a ratio of 10, or without a request today, it does what LimitKeep does.
	LimitKeepRatio LimitMode = "keep-ratio"
	// LimitEqual makes the limit equal to the request.
	LimitEqual LimitMode = "equal-to-request"
	// LimitHeadroom makes the limit (1+Headroom) times the request.
	LimitHeadroom LimitMode = "headroom"
)

// LimitPolicy is a mode and, for LimitHeadroom, its headroom.
type LimitPolicy struct {
	Mode LimitMode
	// Headroom >= 0: 0.5 makes the limit one and a half times the request.
	Headroom series.Ratio
}

// Specification is an allowed size.
type Specification struct {
	CPU    series.MilliCPU
	Memory series.Bytes
}

// FieldError says what is wrong with one field of a policy.
type FieldError struct {
	// Path is the field, for example cpu.margin or the key of a gocrane configuration.
	Path string
	// Value is what was given, as text.
	Value string
	// Allowed is what would have been right.
	Allowed string
}

// Error is path: invalid value: allowed.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: invalid value %q: %s", e.Path, e.Value, e.Allowed)
}

// Validate returns nil or all that is wrong, one *FieldError for each field.
func (p Policy) Validate() error {
	v := &validator{}
	v.check(p.MinHistory > 0, "minHistory", p.MinHistory, "must be above zero")
	cpu := p.CPU
	v.check(cpu.Method == Percentile || cpu.Method == Envelope, "cpu.method", cpu.Method, "must be percentile or envelope")
	v.share("cpu.percentile", cpu.Percentile)
	v.envelope(cpu)
	v.window("cpu", cpu.Window, cpu.HalfLife)
	v.check(cpu.Margin >= 0 && cpu.Margin <= 10, "cpu.margin", cpu.Margin, "must be 0 to 10 (0.15 is 15 %)")
	v.share("cpu.targetUtilization", cpu.TargetUtilization)
	v.check(cpu.Floor > 0, "cpu.floor", cpu.Floor, "must be above zero: a request of zero is never recommended")
	v.check(cpu.Step > 0, "cpu.step", cpu.Step, "must be above zero")
	v.check(cpu.Ceiling == 0 || cpu.Ceiling >= cpu.Floor, "cpu.ceiling", cpu.Ceiling, "must be 0 (none) or at least the floor")
	v.limit("cpu.limit", cpu.Limit)
	mem := p.Memory
	v.share("memory.percentile", mem.Percentile)
	v.window("memory", mem.Window, mem.HalfLife)
	v.check(mem.Margin >= 0 && mem.Margin <= 10, "memory.margin", mem.Margin, "must be 0 to 10 (0.15 is 15 %)")
	v.check(mem.TailMargin >= 0 && mem.TailMargin <= 100, "memory.tailMargin", mem.TailMargin, "must be 0 to 100")
	v.check(mem.MaxMargin >= 0 && mem.MaxMargin <= 10, "memory.maxMargin", mem.MaxMargin, "must be 0 to 10")
	v.share("memory.targetUtilization", mem.TargetUtilization)
	v.check(mem.Floor > 0, "memory.floor", mem.Floor, "must be above zero: a request of zero is never recommended")
	v.check(mem.Step > 0, "memory.step", mem.Step, "must be above zero")
	v.check(mem.Ceiling == 0 || mem.Ceiling >= mem.Floor, "memory.ceiling", mem.Ceiling, "must be 0 (none) or at least the floor")
	v.limit("memory.limit", mem.Limit)
	v.check(mem.PageCache.LeaveOut >= 0 && mem.PageCache.LeaveOut <= 1, "memory.pageCache.leaveOut", mem.PageCache.LeaveOut, "must be 0 to 1 (0.5 is half of it)")
	if oom := mem.OOM; oom.Enabled {
		v.check(oom.Ratio >= 1 && oom.Ratio <= 10, "memory.oom.ratio", oom.Ratio, "must be 1 to 10")
		v.check(oom.MinBump >= 0, "memory.oom.minBump", oom.MinBump, "must not be below zero")
		v.check(oom.Cap >= oom.Ratio, "memory.oom.cap", oom.Cap, "must be at least memory.oom.ratio")
		v.check(oom.Window > 0, "memory.oom.window", oom.Window, "must be above zero")
		v.check(oom.HalfLife >= 0, "memory.oom.halfLife", oom.HalfLife, "must not be below zero")
	}
	for i, s := range p.Specifications {
		v.check(s.CPU > 0 && s.Memory > 0, fmt.Sprintf("specifications[%d]", i), s, "CPU and memory must be above zero")
	}
	return errors.Join(v.errs...)
}

// validator collects field errors.
type validator struct{ errs []error }

func (v *validator) check(ok bool, path string, value any, allowed string) {
	if !ok {
		v.errs = append(v.errs, &FieldError{Path: path, Value: fmt.Sprint(value), Allowed: allowed})
	}
}

func (v *validator) share(path string, r series.Ratio) {
	v.check(r > 0 && r <= 1, path, r, "must be above 0 and at most 1")
}

func (v *validator) envelope(cpu CPUPolicy) {
	e := cpu.Envelope
	if cpu.Method != Envelope {
		v.check(e == EnvelopePolicy{}, "cpu.envelope", e, "contradicts the method: only envelope has one")
		return
	}
	v.check(e.ViolationPrice >= 0 && e.ViolationPrice <= 1000, "cpu.envelope.violationPrice", e.ViolationPrice, "must be 0 to 1000")
	v.share("cpu.envelope.cover", e.Cover)
	v.check(e.SpreadMargin >= 0 && e.SpreadMargin <= 10, "cpu.envelope.spreadMargin", e.SpreadMargin, "must be 0 to 10")
	v.check(e.MaxMargin >= cpu.Margin && e.MaxMargin <= 10, "cpu.envelope.maxMargin", e.MaxMargin, "must be cpu.margin to 10")
	v.check(e.Recent >= 0 && e.Recent < 1, "cpu.envelope.recent", e.Recent, "must be 0 (off) or below 1")
}

func (v *validator) window(resource string, window, halfLife time.Duration) {
	const day = 24 * time.Hour
	v.check(window >= day && window <= 366*day && window%day == 0, resource+".window", window, "must be a whole number of days, 1d to 366d")
	v.check(halfLife >= 0, resource+".halfLife", halfLife, "must not be below zero; 0 means that all days count the same")
}

func (v *validator) limit(path string, l LimitPolicy) {
	modes := []LimitMode{LimitNone, LimitKeep, LimitKeepRatio, LimitEqual, LimitHeadroom}
	v.check(slices.Contains(modes, l.Mode), path+".mode", l.Mode, "must be one of "+joinModes(modes))
	v.check(l.Headroom >= 0 && l.Headroom <= 100, path+".headroom", l.Headroom, "must be 0 to 100 (0.5 is 50 %)")
	v.check(l.Mode == LimitHeadroom || l.Headroom == 0, path+".headroom", l.Headroom, "contradicts the mode: only headroom has one")
}

func joinModes(modes []LimitMode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
