// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podlimits computes what the LimitRanges and ResourceQuotas of a namespace allow for CPU and memory of pods, as the API server checks
// it at the creation and the resize of a pod.
package podlimits

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/effectiveresources"
)

// Rules are the LimitRanges and ResourceQuotas of one namespace.
type Rules struct {
	LimitRanges []corev1.LimitRange
	Quotas      []corev1.ResourceQuota
}

// Read reads the rules of a namespace, from a cache or from the API server. They belong to the cache.
func Read(ctx context.Context, reader client.Reader, namespace string) (Rules, error) {
	ranges, err := effectiveresources.LimitRanges(ctx, reader, namespace)
	if err != nil {
		return Rules{}, err
	}

	quotas, err := Quotas(ctx, reader, namespace)
	if err != nil {
		return Rules{}, err
	}

	return Rules{LimitRanges: ranges, Quotas: quotas}, nil
}

// Quotas returns the ResourceQuotas of a namespace by name, from a cache or from the API server. They belong to the cache.
func Quotas(ctx context.Context, reader client.Reader, namespace string) ([]corev1.ResourceQuota, error) {
	var list corev1.ResourceQuotaList
	err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the ResourceQuotas of %s: %w", namespace, err)
	}

	slices.SortFunc(list.Items, func(a, b corev1.ResourceQuota) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// Refusal returns why a new pod would be refused, with the name of the object; empty if it would not.
func (r Rules) Refusal(pod *corev1.Pod) string {
	if reason := r.rangeRefusal(pod); reason != "" {
		return reason
	}

	return r.quotaRefusal([]Change{{After: pod}})
}

// RefusesChanged reports whether a new pod that is changed would be refused, so that it is better created as it is. Where the quotas have no room
// for either, as those of a cache that lags behind may say, the one that needs less is better.
func (r Rules) RefusesChanged(pod, changed *corev1.Pod) bool {
	switch {
	case r.rangeRefusal(changed) != "":
		return true
	case r.quotaRefusal([]Change{{After: changed}}) == "":
		return false
	}

	return r.quotaRefusal([]Change{{After: pod}}) == "" || r.quotaRefusal([]Change{{Before: pod, After: changed}}) != ""
}

// Change is a pod and what it becomes. Before is nil for an additional pod.
type Change struct {
	Before, After *corev1.Pod
	// Pods is the number of equal pods; 0 for one.
	Pods int64
}

// ChangeRefusal returns why changed or replaced pods would be refused, although the present ones would not; empty if they would not. Quotas
// count what the pods need more.
func (r Rules) ChangeRefusal(changes []Change) string {
	for _, c := range changes {
		if reason := r.rangeRefusal(c.After); reason != "" && (c.Before == nil || r.rangeRefusal(c.Before) == "") {
			return reason
		}
	}

	return r.quotaRefusal(changes)
}
