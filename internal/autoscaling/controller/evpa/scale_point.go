// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/vertical"
)

// scalePoint is what a horizontal autoscaler of the same pods needs together with new requests: the use at which it adds pods is
// its target's share of the request, so both change together, or neither does.
type scalePoint struct {
	// annotation names Crane's own autoscaler with its targets; empty where none has to change.
	annotation string
	// foreignScaler names an autoscaler that is not Crane's and would have to change.
	foreignScaler string
	// message says so.
	message string
}

// newScalePoint compares what the pod template requests with what was decided.
func newScalePoint(sc *namespaceSnapshot, s *autoscalerState, all []containerSizing) scalePoint {
	owner, targets := sc.constraints.UtilizationAutoscaler(s.target.Ref)
	scaler := targetsnapshot.SizingAutoscaler(owner, targets)
	if scaler == nil {
		return scalePoint{}
	}
	var containers []rightsize.Recommendation
	size := desiredSize(all)
	for _, c := range s.sizedContainers() {
		one := rightsize.Recommendation{Container: c.Name, Current: profile.CurrentResources(c), Target: size.Containers[c.Name]}
		if requestAmount(one.Target, vertical.CPU) > 0 {
			one.CPU.Status = rightsize.Ready
		}
		if requestAmount(one.Target, vertical.Memory) > 0 {
			one.Memory.Status = rightsize.Ready
		}
		containers = append(containers, one)
	}
	moves := scaler.TargetChanges(containers)
	if len(moves) == 0 {
		return scalePoint{}
	}
	out := scalePoint{message: scaler.Describe(moves)}
	if owner.Owner == "" {
		out.foreignScaler = owner.Name
		return out
	}
	text, err := targetsnapshot.EncodeScalePoint(owner.Owner, moves)
	if err != nil { // It is then as one that nobody can change.
		out.foreignScaler = owner.Name
		return out
	}
	out.annotation = text
	return out
}
