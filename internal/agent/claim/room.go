// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	corev1 "k8s.io/api/core/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/pkg/series"
)

// Room is what a node has of both resources, more than 0; nil for what is not known or not offered.
type Room struct {
	CPU    *series.MilliCPU
	Memory *series.Bytes
}

// Shares are of both resources: 1 is all of the room, more than 1 is more than there is. Nil for what is not known.
type Shares struct{ CPU, Memory *series.Ratio }

// RoomOf is what a list of a Node's status says.
func RoomOf(list corev1.ResourceList) (r Room) {
	if q := list[ensurancev1alpha1.ResourceReclaimedCPU]; q.Sign() > 0 {
		r.CPU = new(series.MilliCPU(1000 * bounded(q, mostCores)))
	}
	if q := list[ensurancev1alpha1.ResourceReclaimedMemory]; q.Sign() > 0 {
		r.Memory = new(series.Bytes(bounded(q, mostBytes)))
	}
	return r
}

// Shares are those of the room that is held.
func (r Room) Shares(held Amounts) (s Shares) {
	if r.CPU != nil {
		s.CPU = new(series.Ratio(float64(held.CPU) / float64(*r.CPU)))
	}
	if r.Memory != nil {
		s.Memory = new(series.Ratio(float64(held.Memory) / float64(*r.Memory)))
	}
	return s
}
