// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"crane.io/crane/pkg/units"
)

// Unit is the unit of the numbers of a step.
type Unit string

// The units.
const (
	Cores     Unit = "cores"
	BytesUnit Unit = "bytes"
)

// StepCode identifies the kind of a step.
type StepCode string

// The steps, in the order in which they can occur.
const (
	StepEstimate      StepCode = "estimate"
	StepTrend         StepCode = "trend"
	StepLeakExcluded  StepCode = "leak-excluded"
	StepPageCache     StepCode = "page-cache"
	StepThrottled     StepCode = "throttled"
	StepOOM           StepCode = "oom"
	StepJVM           StepCode = "jvm"
	StepCalibration   StepCode = "calibration"
	StepMargin        StepCode = "margin"
	StepBusiestDay    StepCode = "busiest-day"
	StepRecent        StepCode = "recent"
	StepUtilization   StepCode = "target-utilization"
	StepHPA           StepCode = "hpa"
	StepFloor         StepCode = "floor"
	StepCeiling       StepCode = "ceiling"
	StepNode          StepCode = "largest-node"
	StepRounding      StepCode = "rounding"
	StepSpecification StepCode = "specification"
	StepLimit         StepCode = "limit"
)

// Step is one step from usage to a request or limit. From and To are in Unit.
type Step struct {
	Code StepCode `json:"code"`
	Unit Unit     `json:"unit"`
	From float64  `json:"from"`
	To   float64  `json:"to"`
	// Detail is the reason, with its numbers.
	Detail string `json:"detail"`
}

// String returns a text such as "margin: 0.8 -> 0.92 cores (15 % on top)".
func (s Step) String() string {
	if s.From == s.To || s.From == 0 {
		return fmt.Sprintf("%s: %s (%s)", s.Code, s.Unit.format(s.To), s.Detail)
	}

	return fmt.Sprintf("%s: %s -> %s (%s)", s.Code, s.Unit.format(s.From), s.Unit.format(s.To), s.Detail)
}

// MarshalJSON returns the fields with the text of String.
func (s Step) MarshalJSON() ([]byte, error) {
	type fields Step
	return json.Marshal(struct {
		fields
		Text string `json:"text"`
	}{fields(s), s.String()})
}

// format formats an amount.
func (u Unit) format(v float64) string {
	if u == BytesUnit {
		return formatBytes(v)
	}

	return units.FormatCPU(milliUp(v))
}

// formatBytes formats an amount of memory with four digits.
func formatBytes(v float64) string {
	switch {
	case v >= 1<<30:
		return strconv.FormatFloat(v/(1<<30), 'f', 2, 64) + "Gi"
	case v >= 1<<20:
		return strconv.FormatFloat(v/(1<<20), 'f', 1, 64) + "Mi"
	default:
		return strconv.FormatFloat(v/(1<<10), 'f', 1, 64) + "Ki"
	}
}

// percent formats a ratio: 0.15 is "15 %".
func percent(r units.Ratio) string {
	const exact = 1 << 40
	hundredths := math.Round(float64(r) * 10000)
	if !(math.Abs(hundredths) < exact) || hundredths < 0 {
		return strconv.FormatFloat(hundredths/100, 'f', -1, 64) + " %"
	}

	var buffer [24]byte
	integer := uint64(hundredths) / 100

	fraction := uint64(hundredths) % 100
	text := strconv.AppendUint(buffer[:0], integer, 10)
	if fraction > 0 {
		text = append(text, '.', byte('0'+fraction/10))
		if fraction%10 > 0 {
			text = append(text, byte('0'+fraction%10))
		}
	}

	return string(append(text, " %"...))
}

// percentile formats a quantile: 0.985 is "p98.5".
func percentile(q units.Ratio) string {
	var buffer [24]byte
	return string(strconv.AppendFloat(append(buffer[:0], 'p'), float64(q)*100, 'g', 4, 64))
}

// milliUp converts cores into millicores, rounded up except for float noise.
func milliUp(cores float64) units.MilliCPU {
	return units.MilliCPU(min(math.Ceil(cores*1000-1e-6), maxQuantity))
}

// FlagCode identifies a finding.
type FlagCode string

// The findings.
const (
	// FlagThrottled means that usage is at the CPU limit, so the need is unknown.
	FlagThrottled FlagCode = "throttled"
	// FlagLeak means that few replicas grow while their siblings do not.
	FlagLeak FlagCode = "leaking-replica"
	// FlagGrowing means that the memory of the whole workload only grows.
	FlagGrowing FlagCode = "memory-only-grows"
	// FlagIdle means that nothing was used.
	FlagIdle FlagCode = "idle"
	// FlagSpike means that one day is far above all others.
	FlagSpike FlagCode = "single-spike"
	// FlagStartup means that startup needs far more than steady usage.
	FlagStartup FlagCode = "startup-peak"
	// FlagTooLarge means that the container fits on no node.
	FlagTooLarge FlagCode = "larger-than-any-node"
	// FlagNoRequest means that there is no current request, so the saving is unknown.
	FlagNoRequest FlagCode = "no-request-today"
	// FlagOOM means that the container was killed for lack of memory.
	FlagOOM FlagCode = "oom-killed"
	// FlagAutoscaled means that an autoscaler scales on the resource, and the request stays with its target.
	FlagAutoscaled FlagCode = "autoscaled"
	// FlagPageCache means that much of the memory is, or may be, page cache.
	FlagPageCache FlagCode = "page-cache"
	// FlagDissimilarNodes means that the node groups of a DaemonSet need sizes so different that one size wastes resources
	// on some.
	FlagDissimilarNodes FlagCode = "unlike-nodes"
	// FlagTargetMissed means that usage exceeded the request for longer than the target in the replay of the past days.
	FlagTargetMissed FlagCode = "target-missed"
	// FlagNotCalibrated means that the history is too short to be replayed, so that the request promises no target.
	FlagNotCalibrated FlagCode = "not-calibrated"
	// FlagLevelShift means that usage moved to another level, and only the new level counts.
	FlagLevelShift FlagCode = "level-shift"
	// FlagWeeklyPeak means that the request does not cover the usage of a weekday that repeats each week.
	FlagWeeklyPeak FlagCode = "weekly-peak"
	// FlagImplausible means that samples were left out because they cannot be measurements.
	FlagImplausible FlagCode = "implausible-samples"
)

// Flag is a finding about a container.
type Flag struct {
	Code   FlagCode `json:"code"`
	Detail string   `json:"detail"`
}
