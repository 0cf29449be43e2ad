// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Resource is the name of a resource. Its amounts are whole numbers: millicores of CPU, bytes of memory.
type Resource string

// The resources.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
)

// Resources returns all resources, in the order of decisions and reports.
func Resources() []Resource { return []Resource{CPU, Memory} }

// unit returns the unit that amounts are rounded up to: a millicore, or a mebibyte for readability.
func (r Resource) unit() int64 {
	if r == CPU {
		return 1
	}
	return 1 << 20
}

// Format formats an amount like Kubernetes.
func (r Resource) Format(amount int64) string {
	if r == CPU {
		return rightsize.FormatCPU(series.MilliCPU(amount))
	}
	return rightsize.FormatMemory(series.Bytes(amount))
}

// maxAmount returns the largest valid estimate: a million cores, or an exbibyte.
func (r Resource) maxAmount() float64 {
	if r == CPU {
		return 1e9
	}
	return 1 << 60
}

// RoundUp rounds an estimate up to the unit of its resource, ignoring floating-point noise. It returns 0 for an invalid estimate,
// and at most an exbibyte.
func (r Resource) RoundUp(v float64) int64 {
	if !(v > 0) {
		return 0
	}
	return r.roundUp(v)
}

func (r Resource) roundUp(v float64) int64 {
	unit := float64(r.unit())
	return int64(math.Max(1, math.Ceil(math.Min(v, r.maxAmount())/unit-1e-6))) * r.unit()
}

// isValid reports whether a container could request an estimate.
func (r Resource) isValid(v float64) bool { return v > 0 && v <= r.maxAmount() }

// Validated returns an estimate that has failed where its value is invalid: not positive, too large or no number.
func (e Estimate) Validated(r Resource) Estimate {
	if e.Failure == "" && e.Pending == "" && !r.isValid(e.Value) {
		e.Failure = fmt.Sprintf("its answer %v is no size", e.Value)
	}
	return e
}

// Amounts are amounts by resource. Absent ones and 0 are unset.
type Amounts map[Resource]int64

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
