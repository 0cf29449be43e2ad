// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package throttle finds containers that their own CPU limit holds up: the kernel grants a limit in periods of 100 ms, and a
// container that has used up its share of one waits for the next, whatever the node has idle. It must not know where the
// counters of the kernel are read.
package throttle

import (
	"fmt"
	"math"
	"strings"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// ReasonThrottled of plans: a limit holds a container up.
const ReasonThrottled = "Throttled"

// Settings say when a limit is too tight and how it is widened.
type Settings struct {
	// Share of the periods in which the container was held up, above which its limit is too tight.
	Share series.Ratio
	// Percentile says which of the hours is held against it.
	Percentile series.Ratio
	// MaxFactor is the most by which a limit is raised at once, above 1.
	MaxFactor float64
	// Hours is the length of the window, MinHours how many of them have to be known.
	Hours, MinHours int
}

// ParseSettings reads
//
//	throttled-share 0.25, percentile 0.95, max-factor 2, history-length 168h, min-history 24h
//
// A quarter of the periods is where the alert CPUThrottlingHigh of kubernetes-mixin begins.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		Share: series.Ratio(r.Number("throttled-share", 0.25, 0.01, 1)), Percentile: r.Share("percentile", 0.95),
		MaxFactor: r.Number("max-factor", 2, minFactor, 10),
		Hours:     r.Hours("history-length", 168, 1, 90*24), MinHours: r.Hours("min-history", 24, 1, 90*24),
	}
	s.MinHours = min(s.MinHours, s.Hours)
	return s, r.Err()
}

const (
	// minFactor is the least by which a limit is raised: less would be another throttled week.
	minFactor = 1.25
	// step is what limits are rounded up to.
	step = 10
)

// Input is what is known of one workload.
type Input struct {
	Containers []Container
	// Guaranteed tells that requests and limits of its pods are the same: a limit then moves with its request, or the pods
	// would lose their class.
	Guaranteed bool
	// MaxCPU is what the largest node has for pods; 0 where it is not known.
	MaxCPU series.MilliCPU
}

// Container is one container of the workload.
type Container struct {
	Name string
	// Limit is 0 where there is none.
	Limit series.MilliCPU
	// Throttled is the share of the periods with work in which the container was held up, of the pod that was most.
	Throttled observation.Hours
}

// Limit is another limit for a container.
type Limit struct {
	Container string
	From, To  series.MilliCPU
	// WithRequest tells that the request becomes the same.
	WithRequest bool
}

// Plan is what is recommended for one workload.
type Plan struct {
	recommend.Plan
	// Limits are those that change.
	Limits []Limit
}

// Decide says which limits hold their containers up, and what they should be. No limit is ever lowered.
func Decide(in Input, s Settings) Plan {
	need := observation.Requirement{Hours: s.Hours, Share: series.Ratio(float64(s.MinHours) / float64(max(s.Hours, 1))), MaxStale: observation.DefaultRequirement(s.Hours).MaxStale}
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
			Name:  fmt.Sprintf("%s of the periods in an hour in which %s was held up, over %s", observation.FormatPercentile(s.Percentile), c.Name, observation.FormatHours(s.Hours)),
			Value: 100 * min(share, 1), Unit: "%", Limit: &limit,
		}
		plan.Evidence = append(plan.Evidence, e)
		to := raiseLimit(c.Limit, share, s.MaxFactor, in.MaxCPU)
		if to > c.Limit {
			plan.Limits = append(plan.Limits, Limit{Container: c.Name, From: c.Limit, To: to, WithRequest: in.Guaranteed})
		}
		found = append(found, sentence(c, e.Value, to))
	}
	switch {
	case limited == 0:
		plan.State, plan.Description = recommend.Clear, "No container has a CPU limit."
	case len(found) == 0 && len(missing) > 0:
		plan.State, plan.Description = missingState, strings.Join(missing, " ")
	case len(found) == 0:
		plan.State, plan.Description = recommend.Clear, "No limit holds its container up."
	default:
		plan.State, plan.Action, plan.Reason, plan.Incomplete = recommend.Ready, recommend.NoAction, ReasonThrottled, len(missing) > 0
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

// raiseLimit widens a limit by the share of the periods in which it was too tight. How much more the container would have used
// does not show while it is held up, so the step is bounded, and the next look says whether it was enough.
func raiseLimit(limit series.MilliCPU, share, most float64, node series.MilliCPU) series.MilliCPU {
	factor := min(max(1+share, minFactor), max(most, minFactor))
	to := math.Ceil(float64(limit)*factor/step) * step
	if !(to < math.MaxInt64/2) {
		return limit
	}
	out := series.MilliCPU(to)
	if node > 0 {
		out = min(out, node)
	}
	return max(out, limit)
}

func sentence(c Container, percent float64, to series.MilliCPU) string {
	text := fmt.Sprintf("The limit of %s holds %s up in %.3g %% of the periods: ", rightsize.FormatCPU(c.Limit), c.Name, percent)
	if to > c.Limit {
		return text + rightsize.FormatCPU(to) + " is the next step, no limit the last."
	}
	return text + "no node has more, so more pods or no limit would help."
}
