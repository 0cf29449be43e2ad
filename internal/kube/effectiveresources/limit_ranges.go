// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package effectiveresources

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LimitRanges returns the LimitRanges of a namespace by name, from a cache or from the API server. They belong to the cache.
func LimitRanges(ctx context.Context, reader client.Reader, namespace string) ([]corev1.LimitRange, error) {
	var list corev1.LimitRangeList
	err := reader.List(ctx, &list, &client.ListOptions{Namespace: namespace, UnsafeDisableDeepCopy: new(true)})
	if err != nil {
		return nil, fmt.Errorf("listing the LimitRanges of %s: %w", namespace, err)
	}

	slices.SortFunc(list.Items, func(a, b corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}
