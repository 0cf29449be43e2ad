// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/units"
)

// Resources returns all resources, in the order of decisions and reports.
func Resources() []units.Resource { return []units.Resource{units.CPU, units.Memory} }

// unit returns the unit that amounts are rounded up to: a millicore, or a mebibyte for readability.
func unitOf(r units.Resource) int64 {
	if r == units.CPU {
		return 1
	}

	return 1 << 20
}

// maxAmount returns the largest valid estimate: a million cores, or an exbibyte.
func maxAmount(r units.Resource) float64 {
	if r == units.CPU {
		return 1e9
	}

	return 1 << 60
}

// RoundUp rounds an estimate up to the unit of its resource, ignoring floating-point noise. It returns 0 for an invalid estimate,
// and at most an exbibyte.
func RoundUp(r units.Resource, v float64) int64 {
	if !(v > 0) {
		return 0
	}

	return roundUp(r, v)
}

func roundUp(r units.Resource, v float64) int64 {
	unit := float64(unitOf(r))
	return int64(math.Max(1, math.Ceil(math.Min(v, maxAmount(r))/unit-1e-6))) * unitOf(r)
}

// isValid reports whether a container could request an estimate.
func isValid(r units.Resource, v float64) bool { return v > 0 && v <= maxAmount(r) }

// Validated returns an estimate that has failed where its value is invalid: not positive, too large or no number.
func (e Estimate) Validated(r units.Resource) Estimate {
	if e.Failure == "" && e.Pending == "" && !isValid(r, e.Value) {
		e.Failure = fmt.Sprintf("its answer %v is no size", e.Value)
	}

	return e
}

// Amounts are amounts by resource. Absent ones and 0 are unset.
type Amounts map[units.Resource]int64

// Estimate is the answer of one estimator for one resource of one container.
type Estimate struct {
	// Estimator is the type of the estimator. An answer of higher Priority wins, and the larger one of equal priority.
	Estimator string
	Priority  int
	// Value is the need in millicores or bytes, valid where neither Failure nor Pending is set.
	Value float64
	// Lower and Upper bound the need; 0 where the estimator does not know them.
	Lower, Upper float64
	// Reason describes where the value comes from.
	Reason string
	// LowerBoundOnly marks an answer that is a minimum, such as after an OOM kill. It never hides a larger answer of an estimator
	// with lower priority.
	LowerBoundOnly bool
	// Failure is the reason why an answer is missing, Pending the reason why there is none yet. Neither counts as zero, and neither
	// lets a request be lowered that the answer might have kept.
	Failure, Pending string
}

// ChangeTimes are the times at which a request was changed last; zero for never.
type ChangeTimes struct{ RaisedAt, LoweredAt time.Time }
