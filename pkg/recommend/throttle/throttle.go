// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package throttle finds containers that their own CPU limit throttles: the kernel grants the limit in periods of 100 ms,
// and a container that has used up its quota of one waits for the next, even if the node is idle. Reading the counters of
// the kernel does not belong here.
package throttle

import (
	"fmt"
	"math"
	"strings"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// ReasonThrottled means that a limit throttles its container.
const ReasonThrottled = "Throttled"

// Settings define when a limit is too low and by how much it is raised.
type Settings struct {
	// Share is the share of throttled periods above which a limit is too low.
	Share units.Ratio
	// Percentile selects the hour that is compared with it.
	Percentile units.Ratio
	// MaxFactor is the largest factor by which a limit is raised at once, above 1.
	MaxFactor float64
	// Hours is the length of the window, MinHours the number of hours that must be known.
	Hours, MinHours int
}

// ParseSettings parses the settings; the defaults are
//
//	throttled-share 0.25, percentile 0.95, max-factor 2, history-length 168h, min-history 24h
//
// The alert CPUThrottlingHigh of kubernetes-mixin fires from a quarter of the periods.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		Share:      units.Ratio(r.Number("throttled-share", 0.25, 0.01, 1)),
		Percentile: r.Share("percentile", 0.95),
		MaxFactor:  r.Number("max-factor", 2, minFactor, 10),
		Hours:      r.Hours("history-length", 168, 1, 90*24),
		MinHours:   r.Hours("min-history", 24, 1, 90*24),
	}

	s.MinHours = min(s.MinHours, s.Hours)
	return s, r.Err()
}

const (
	// minFactor is the smallest factor by which a limit is raised; a smaller one would likely be too low again.
	minFactor = 1.25
	// step is the unit to which limits are rounded up.
	step = 10
)

// Input describes one workload.
type Input struct {
	Containers []Container
	// Guaranteed is set if requests and limits of the pods are the same: a limit then changes with its request, so that the
	// pods keep their QoS class.
	Guaranteed bool
	// MaxCPU is the allocatable CPU of the largest node; 0 if unknown.
	MaxCPU units.MilliCPU
}

// Container is one container of the workload.
type Container struct {
	Name string
	// Limit is 0 if there is none.
	Limit units.MilliCPU
	// Throttled is the share of throttled periods among those with work, of the most throttled pod.
	Throttled observation.Hours
}

// Limit is a changed limit of a container.
type Limit struct {
	Container string
	From, To  units.MilliCPU
	// WithRequest is set if the request changes to the same value.
	WithRequest bool
}

// Plan is the recommendation for one workload.
type Plan struct {
	recommend.Plan
	// Limits are the changed limits.
	Limits []Limit
}

// Decide returns the limits that throttle their containers, and new ones. It never lowers a limit.
func Decide(in Input, s Settings) Plan {
	need := observation.Requirement{Hours: s.Hours, Share: units.Ratio(float64(s.MinHours) / float64(max(s.Hours, 1))), MaxStale: observation.DefaultRequirement(s.Hours).MaxStale}
	var plan Plan

	var found, missing []string
	missingState := recommend.Learning
	limited := 0
	for _, c := range in.Containers {
		if c.Limit <= 0 {
			continue
		}

		limited++
		if state, why := need.Check("throttling of "+c.Name, c.Throttled); state != recommend.Ready {
			missing = append(missing, why)
			if state == recommend.NoData {
				missingState = state
			}

			continue
		}

		share := need.Quantile(c.Throttled, s.Percentile)
		if !(share > float64(s.Share)) {
			continue
		}

		limit := 100 * float64(s.Share)
		e := recommend.Evidence{
			Name:  fmt.Sprintf("%s of the periods in an hour in which %s was throttled, over %s", units.FormatPercentile(s.Percentile), c.Name, units.FormatHours(s.Hours)),
			Value: 100 * min(share, 1),
			Unit:  "%",
			Limit: &limit,
		}

		plan.Evidence = append(plan.Evidence, e)
		// A limit at the size of the largest node is reported without a new one.
		to := raiseLimit(c.Limit, share, s.MaxFactor, in.MaxCPU)
		if to > c.Limit {
			plan.Limits = append(plan.Limits, Limit{
				Container:   c.Name,
				From:        c.Limit,
				To:          to,
				WithRequest: in.Guaranteed,
			})
		}

		found = append(found, sentence(c, e.Value, to))
	}

	switch {
	case limited == 0:
		plan.State = recommend.Clear
		plan.Description = "No container has a CPU limit."

	case len(found) == 0 && len(missing) > 0:
		plan.State = missingState
		plan.Description = strings.Join(missing, " ")

	case len(found) == 0:
		plan.State = recommend.Clear
		plan.Description = "No limit throttles its containers."

	default:
		plan.State = recommend.Ready
		plan.Action = recommend.NoAction
		plan.Reason = ReasonThrottled
		plan.Incomplete = len(missing) > 0
		if len(plan.Limits) > 0 {
			plan.Action = recommend.Patch
		}
		if in.Guaranteed && len(plan.Limits) > 0 {
			found = append(found, "Requests move with the limits, so that the pods stay Guaranteed.")
		}

		plan.Description = strings.Join(append(found, missing...), " ")
	}

	return plan
}

// raiseLimit raises a limit by the share of throttled periods. A throttled container does not show how much more it would
// use, so the step is bounded, and the next evaluation shows whether it was sufficient.
func raiseLimit(limit units.MilliCPU, share, maxFactor float64, node units.MilliCPU) units.MilliCPU {
	factor := min(max(1+share, minFactor), max(maxFactor, minFactor))
	to := math.Ceil(float64(limit)*factor/step) * step
	if !(to < math.MaxInt64/2) {
		return limit
	}

	out := units.MilliCPU(to)
	if node > 0 {
		out = min(out, node)
	}

	return max(out, limit)
}

func sentence(c Container, percent float64, to units.MilliCPU) string {
	text := fmt.Sprintf("The limit of %s throttles %s in %.3g %% of the periods: ", units.FormatCPU(c.Limit), c.Name, percent)
	if to > c.Limit {
		return text + units.FormatCPU(to) + " is the next step, no limit the last."
	}

	return text + "no node has more, so more pods or no limit would help."
}
