// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticrequest

import (
	corev1 "k8s.io/api/core/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

// ReclaimableCapacity is what a node can bear of both resources; nil for what is not known.
type ReclaimableCapacity struct {
	CPU    *series.MilliCPU
	Memory *series.Bytes
}

// AllocatedShares are of both resources, as elastic.AllocatedShare reckons them. Nil for what is not known.
type AllocatedShares struct{ CPU, Memory *series.Ratio }

// ReadReclaimableCapacity is what a list of a Node's status says; what it does not offer is not known.
func ReadReclaimableCapacity(list corev1.ResourceList) (r ReclaimableCapacity) {
	if q := list[ensurancev1alpha1.ResourceReclaimedCPU]; q.Sign() > 0 {
		r.CPU = new(series.MilliCPU(1000 * clampQuantity(q, maxCores)))
	}
	if q := list[ensurancev1alpha1.ResourceReclaimedMemory]; q.Sign() > 0 {
		r.Memory = new(series.Bytes(clampQuantity(q, maxBytes)))
	}
	return r
}

// AllocatedShares are those of the room that is held.
func (r ReclaimableCapacity) AllocatedShares(held Amounts) (s AllocatedShares) {
	if r.CPU != nil {
		s.CPU = new(elastic.AllocatedShare(held.CPU, *r.CPU, elastic.CPU().Unit))
	}
	if r.Memory != nil {
		s.Memory = new(elastic.AllocatedShare(held.Memory, *r.Memory, elastic.Memory().Unit))
	}
	return s
}
