// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticrequest

import (
	corev1 "k8s.io/api/core/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

// ReclaimableCapacity is the capacity of a node for pods on elastic resources; nil means unknown.
type ReclaimableCapacity struct {
	CPU    *series.MilliCPU
	Memory *series.Bytes
}

// AllocatedShares holds elastic.AllocatedShare of both resources; nil means unknown.
type AllocatedShares struct{ CPU, Memory *series.Ratio }

// ReadReclaimableCapacity reads the elastic resources of a Node's status; a missing resource is unknown.
func ReadReclaimableCapacity(list corev1.ResourceList) (r ReclaimableCapacity) {
	if q := list[ensurancev1alpha1.ResourceReclaimedCPU]; q.Sign() > 0 {
		r.CPU = new(series.MilliCPU(1000 * clampQuantity(q, maxCores)))
	}
	if q := list[ensurancev1alpha1.ResourceReclaimedMemory]; q.Sign() > 0 {
		r.Memory = new(series.Bytes(clampQuantity(q, maxBytes)))
	}
	return r
}

// AllocatedShares returns the allocated share of each resource.
func (r ReclaimableCapacity) AllocatedShares(held Amounts) (s AllocatedShares) {
	if r.CPU != nil {
		s.CPU = new(elastic.AllocatedShare(held.CPU, *r.CPU, elastic.CPU().Unit))
	}
	if r.Memory != nil {
		s.Memory = new(elastic.AllocatedShare(held.Memory, *r.Memory, elastic.Memory().Unit))
	}
	return s
}
