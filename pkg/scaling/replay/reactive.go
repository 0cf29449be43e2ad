// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/scaling"
)

// Reactive is the HPA alone: utilization against a target.
type Reactive struct {
	Target    float64
	Tolerance scaling.Tolerance
}

// Name implements Scaler.
func (Reactive) Name() string { return "reactive" }

// Observe implements Scaler.
func (Reactive) Observe(time.Time, float64) {}

// Propose implements Scaler.
func (r Reactive) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	return []scaling.Proposal{r.reactiveProposal(v)}, 0
}

func (r Reactive) reactiveProposal(v ScalerInput) scaling.Proposal {
	p := scaling.Proposal{Metric: "cpu"}
	p.Replicas, p.Err = scaling.ReplicasForUtilization(v.Pods, v.Current, int32(math.Round(100*r.Target)), r.Tolerance)
	p.Reason = fmt.Sprintf("use against a target of %.0f %%", 100*r.Target)

	return p
}
