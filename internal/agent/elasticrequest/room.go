// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticrequest

import (
	corev1 "k8s.io/api/core/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

// Room is what a node can bear of both resources; nil for what is not known.
type Room struct {
	CPU    *series.MilliCPU
	Memory *series.Bytes
}

// Shares are of both resources, as elastic.Share reckons them. Nil for what is not known.
type Shares struct{ CPU, Memory *series.Ratio }

// RoomOf is what a list of a Node's status says; what it does not offer is not known.
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
		s.CPU = new(elastic.Share(held.CPU, *r.CPU, elastic.CPU().Unit))
	}
	if r.Memory != nil {
		s.Memory = new(elastic.Share(held.Memory, *r.Memory, elastic.Memory().Unit))
	}
	return s
}
