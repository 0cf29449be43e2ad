// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topologyconv converts NodeResourceTopologies, resource quantities and the annotation topology.crane.io/topology-result to
// values of pkg/numa and back, for the scheduler's plugin and the agent. Anyone may write an annotation, so all input is validated.
package topologyconv

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/numa"
)

// ParseAmounts converts a resource list, CPU to thousandths of a core, others to their own unit (rounded up).
func ParseAmounts(list corev1.ResourceList) (numa.Resources, error) {
	out := make(numa.Resources, len(list))
	for name, q := range list {
		a, err := ParseAmount(name, q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[numa.Resource(name)] = a
	}
	return out, nil
}

// ParseAmount converts a quantity. It rejects negative ones and those above numa.MaxAmount. It checks the exponent first, because
// converting 1e999999999 would compute a number of a billion digits.
func ParseAmount(name corev1.ResourceName, q resource.Quantity) (numa.Amount, error) {
	if _, plain := q.AsInt64(); !plain {
		q = q.DeepCopy() // AsDec changes its receiver.
		if scale := q.AsDec().Scale(); scale < -18 || scale > 18 {
			return 0, fmt.Errorf("the quantity is of the order of 1e%d", -scale)
		}
	}
	v := q.Value()
	if v < 0 || v > int64(numa.MaxAmount)/int64(numa.Core) && name == corev1.ResourceCPU || v > int64(numa.MaxAmount) {
		return 0, fmt.Errorf("%s is out of range", q.String())
	}
	if name == corev1.ResourceCPU {
		v = q.MilliValue()
	}
	return numa.Amount(v), nil
}

// NewQuantity converts an amount to a quantity in the usual format of the resource.
func NewQuantity(name numa.Resource, a numa.Amount) resource.Quantity {
	switch {
	case name == numa.CPU:
		return *resource.NewMilliQuantity(int64(a), resource.DecimalSI)
	case name == numa.Resource(corev1.ResourceMemory), name == numa.Resource(corev1.ResourceEphemeralStorage),
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(int64(a), resource.BinarySI)
	}
	return *resource.NewQuantity(int64(a), resource.DecimalSI)
}
