// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// DirectionPolicy bounds changes of requests in one direction.
type DirectionPolicy struct {
	// Off disables changes in this direction.
	Off bool
	// Thresholds are percentages of the current request, by resource: it is raised where the need is above, lowered where it is
	// below.
	Thresholds Amounts
	// Window is the minimum time between two changes in this direction; for lowering, also since the last raise.
	Window time.Duration
}

// DefaultUp returns the default for raising: where the need exceeds the current request (the threshold is 95 %), at most every 150
// s. The numbers are gocrane's.
func DefaultUp() DirectionPolicy {
	return DirectionPolicy{Thresholds: Amounts{units.CPU: 95, units.Memory: 95}, Window: 150 * time.Second}
}

// DefaultDown returns the default for lowering: where the need is below 35 % of the CPU request or 40 % of the memory request, at
// most every twelve hours. The numbers are gocrane's.
func DefaultDown() DirectionPolicy {
	return DirectionPolicy{Thresholds: Amounts{units.CPU: 35, units.Memory: 40}, Window: 12 * time.Hour}
}

// Policy bounds the requests of one container.
type Policy struct {
	Up, Down DirectionPolicy
	// Min and Max bound requests; 0 for no bound.
	Min, Max Amounts
	// Controlled are the resources that are sized.
	Controlled []units.Resource
	// RequestsOnly leaves limits unchanged, and requests within them; otherwise limits keep their ratio to requests.
	RequestsOnly bool
}

// DefaultPolicy returns the policy of a container without one.
func DefaultPolicy() Policy {
	return Policy{Up: DefaultUp(), Down: DefaultDown(), Controlled: Resources()}
}

// contradiction describes a contradiction in the policy of a resource, empty for none.
func (p Policy) contradiction(r units.Resource) string {
	low := p.Min[r]
	high := p.Max[r]
	if low > 0 && high > 0 && low > high {
		return fmt.Sprintf("minAllowed %s is above maxAllowed %s: nothing is changed until one of them is", units.FormatAmount(r, low), units.FormatAmount(r, high))
	}

	raiseAbove := p.Up.Thresholds[r]
	lowerBelow := p.Down.Thresholds[r]
	if !p.Up.Off && !p.Down.Off && raiseAbove < lowerBelow {
		return fmt.Sprintf("the threshold to raise, %d %%, is below the one to lower, %d %%: nothing is changed until one of them is", raiseAbove, lowerBelow)
	}

	return ""
}

// clamp bounds a need by the policy, the largest node and an unchanged limit, and describes the effective bounds. The policy takes
// precedence over the node.
func (p Policy) clamp(r units.Resource, need, node, limit int64) (int64, string) {
	var why []string
	to := need
	if node > 0 && to > node {
		to = node
		why = append(why, "the largest node has "+units.FormatAmount(r, node)+" for pods")
	}

	if high := p.Max[r]; high > 0 && to > high {
		to = high
		why = append(why, "maxAllowed is "+units.FormatAmount(r, high))
	}

	if low := p.Min[r]; to < low {
		to = low
		why = append(why, "minAllowed is "+units.FormatAmount(r, low))
	}

	if p.RequestsOnly && limit > 0 && to > limit {
		to = limit
		why = append(why, "its limit stays "+units.FormatAmount(r, limit))
	}

	return to, strings.Join(why, ", ")
}

// maxLimitRatio is the largest ratio of limit to request that is kept. A request below it was a formality.
const maxLimitRatio = 10

// limitFor returns the limit for a request; 0 leaves it unchanged.
func (p Policy) limitFor(to, request, limit int64) int64 {
	switch {
	case p.RequestsOnly || limit <= 0:
		return 0
	case request > 0 && limit >= request && float64(limit) <= maxLimitRatio*float64(request):
		scaled := float64(to) * float64(limit) / float64(request)
		return max(to, int64(math.Min(math.Round(scaled), math.MaxInt64/2)))
	case limit < to:
		return to
	}

	return limit
}

// Controls reports whether a resource is sized.
func (p Policy) Controls(r units.Resource) bool { return slices.Contains(p.Controlled, r) }
