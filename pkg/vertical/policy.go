// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// DirectionPolicy says when requests are changed one way.
type DirectionPolicy struct {
	// Off never changes them this way.
	Off bool
	// Thresholds are by resource, in percent of the request of today: it is raised where the need is above, lowered where it
	// is below.
	Thresholds Amounts
	// Window is the least time between two changes this way; for lowering, also since the last raise.
	Window time.Duration
}

// DefaultUp is how requests are raised where nothing is said: from 95 % of the request of today on, which is whenever the need
// is more, at most every 150 s. The numbers are gocrane's.
func DefaultUp() DirectionPolicy {
	return DirectionPolicy{Thresholds: Amounts{CPU: 95, Memory: 95}, Window: 150 * time.Second}
}

// DefaultDown is how requests are lowered where nothing is said: where the need is below 35 % of the CPU request, 40 % of the
// memory request, at most every twelve hours. The numbers are gocrane's.
func DefaultDown() DirectionPolicy {
	return DirectionPolicy{Thresholds: Amounts{CPU: 35, Memory: 40}, Window: 12 * time.Hour}
}

// Policy says how the requests of one container are kept.
type Policy struct {
	Up, Down DirectionPolicy
	// Min and Max bound requests; 0 where there is no bound.
	Min, Max Amounts
	// Controlled are the resources that are set.
	Controlled []Resource
	// RequestsOnly leaves limits as they are, and requests within them; otherwise limits keep their proportion.
	RequestsOnly bool
}

// DefaultPolicy is that of a container of which nothing is said.
func DefaultPolicy() Policy {
	return Policy{Up: DefaultUp(), Down: DefaultDown(), Controlled: Resources()}
}

// contradiction says what is wrong with the policy of a resource; empty for nothing.
func (p Policy) contradiction(r Resource) string {
	low, high := p.Min[r], p.Max[r]
	if low > 0 && high > 0 && low > high {
		return fmt.Sprintf("minAllowed %s is above maxAllowed %s: nothing is changed until one of them is", r.Format(low), r.Format(high))
	}
	up, down := p.Up.Thresholds[r], p.Down.Thresholds[r]
	if !p.Up.Off && !p.Down.Off && up < down {
		return fmt.Sprintf("the threshold to raise, %d %%, is below the one to lower, %d %%: nothing is changed until one of them is", up, down)
	}
	return ""
}

// clamp brings a need within the policy, the largest node and a limit that stays, and says what bound it. What a user has asked
// for goes before what a node has.
func (p Policy) clamp(r Resource, need, node, limit int64) (int64, string) {
	var why []string
	to := need
	if node > 0 && to > node {
		to = node
		why = append(why, "the largest node has "+r.Format(node)+" for pods")
	}
	if high := p.Max[r]; high > 0 && to > high {
		to = high
		why = append(why, "maxAllowed is "+r.Format(high))
	}
	if low := p.Min[r]; to < low {
		to = low
		why = append(why, "minAllowed is "+r.Format(low))
	}
	if p.RequestsOnly && limit > 0 && to > limit {
		to = limit
		why = append(why, "its limit stays "+r.Format(limit))
	}
	return to, strings.Join(why, ", ")
}

// maxLimitRatio is the largest proportion of limit to request that is kept. Beyond it the request of today was a formality.
const maxLimitRatio = 10

// limitFor is the limit that belongs to a request; 0 where it stays as it is.
func (p Policy) limitFor(to, request, limit int64) int64 {
	switch {
	case p.RequestsOnly || limit <= 0:
		return 0
	case request > 0 && limit >= request && limit/request <= maxLimitRatio:
		scaled := float64(to) * float64(limit) / float64(request)
		return max(to, int64(math.Min(math.Round(scaled), math.MaxInt64/2)))
	case limit < to:
		return to
	}
	return limit
}

// Controls tells whether a resource is set.
func (p Policy) Controls(r Resource) bool { return slices.Contains(p.Controlled, r) }
