// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// scalePoint is the change of a horizontal autoscaler of the same pods that belongs to new requests: it adds pods when usage exceeds a
// share of the request, so both change together, or neither does.
type scalePoint struct {
	// annotation contains the new targets of an autoscaler of Crane; empty where none has to change.
	annotation string
	// foreignScaler names an autoscaler that Crane does not control and that would have to change.
	foreignScaler string
	message       string
}

// newScalePoint compares the requests of the pod template with the decisions.
func newScalePoint(constraints workload.Constraints, s autoscalerState, sizings []containerSizing) scalePoint {
	owner, targets := constraints.UtilizationAutoscaler(s.target.Ref)
	scaler := profile.SizingAutoscaler(owner, targets)
	if scaler == nil {
		return scalePoint{}
	}

	var containers []rightsize.Recommendation
	size := desiredSize(sizings)
	for _, c := range s.sizedContainers() {
		recommendation := rightsize.Recommendation{Container: c.Name, Current: profile.CurrentResources(c), Target: size.Containers[c.Name]}
		if requestAmount(recommendation.Target, units.CPU) > 0 {
			recommendation.CPU.Status = rightsize.Ready
		}
		if requestAmount(recommendation.Target, units.Memory) > 0 {
			recommendation.Memory.Status = rightsize.Ready
		}

		containers = append(containers, recommendation)
	}

	changes := scaler.TargetChanges(containers)
	if len(changes) == 0 {
		return scalePoint{}
	}

	out := scalePoint{message: scaler.Describe(changes)}
	if owner.Owner == "" {
		out.foreignScaler = owner.Name
		return out
	}

	text, err := targetsnapshot.EncodeScalePoint(owner.Owner, changes)
	if err != nil { // It cannot be changed, like a foreign one.
		out.foreignScaler = owner.Name
		return out
	}

	out.annotation = text
	return out
}
