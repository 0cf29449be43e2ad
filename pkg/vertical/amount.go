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

// Resource is what is requested. Its amounts are whole numbers: millicores of CPU, bytes of memory.
type Resource string

// The resources.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
)

// Resources lists them, in the order in which they are decided and shown.
func Resources() []Resource { return []Resource{CPU, Memory} }

// unit is what an amount is rounded up to: a millicore, and a mebibyte, so that people can read it.
func (r Resource) unit() int64 {
	if r == CPU {
		return 1
	}
	return 1 << 20
}

// Format writes an amount as Kubernetes does.
func (r Resource) Format(amount int64) string {
	if r == CPU {
		return rightsize.FormatCPU(series.MilliCPU(amount))
	}
	return rightsize.FormatMemory(series.Bytes(amount))
}

// maxAmount bounds what an estimator may ask for: a million cores, or an exbibyte. More is no size of a container but a fault.
func (r Resource) maxAmount() float64 {
	if r == CPU {
		return 1e9
	}
	return 1 << 60
}

// RoundUp rounds an estimate up to the unit of its resource, but for float noise. It is 0 for what is no size, and at most an exbibyte.
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

// isValid tells whether an estimate is a number that a container could request.
func (r Resource) isValid(v float64) bool { return v > 0 && v <= r.maxAmount() }

// Validated is an estimate that has failed where its answer is no size: nothing, less than that, too much, or no number at all.
func (e Estimate) Validated(r Resource) Estimate {
	if e.Failure == "" && e.Pending == "" && !r.isValid(e.Value) {
		e.Failure = fmt.Sprintf("its answer %v is no size", e.Value)
	}
	return e
}

// Amounts are amounts by resource; what is absent, or 0, is not set.
type Amounts map[Resource]int64

// Estimate is what one estimator says of one resource of one container.
type Estimate struct {
	// Estimator is its type, Priority its rank: the answer of a higher one wins, the larger one of equals.
	Estimator string
	Priority  int
	// Value is the need, in millicores or bytes; used only where neither Failed nor Pending is set.
	Value float64
	// Lower and Upper bound the need, where the estimator knows that; 0 where it does not.
	Lower, Upper float64
	// Reason says where the value comes from, in a few words.
	Reason string
	// LowerBoundOnly marks an answer that says how little is too little, and nothing about how much is too much: it never hides the
	// answer of an estimator below it that is larger.
	LowerBoundOnly bool
	// Failure says why there is no answer although there should be one. Pending says why there is none yet. Neither is ever
	// taken for zero, and neither lets a request be lowered that its answer might have kept.
	Failure, Pending string
}

// ChangeTimes are when a request was changed last; zero where it was not.
type ChangeTimes struct{ RaisedAt, LoweredAt time.Time }
