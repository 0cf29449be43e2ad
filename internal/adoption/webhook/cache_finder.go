// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/workload"
)

// cacheTimeout is how long the creation of a pod waits for a cache that is not synced.
const cacheTimeout = 500 * time.Millisecond

// NewCacheFinder returns a finder that reads from a cache, and starts the informers it needs on every replica.
func NewCacheFinder(ctx context.Context, c cache.Cache) (WorkloadFinder, error) {
	for _, kind := range workload.WatchedKinds() {
		if _, err := c.GetInformer(ctx, kind.Object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind.GVK.Kind, err)
		}
	}

	if _, err := c.GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watching namespaces: %w", err)
	}

	return func(kind, namespace, name string) (Workload, bool) {
		asking, cancel := context.WithTimeout(context.Background(), cacheTimeout)
		defer cancel()

		for _, k := range workload.WatchedKinds() {
			if k.GVK.Kind != kind {
				continue
			}

			var ns corev1.Namespace
			if c.Get(asking, client.ObjectKey{Namespace: namespace, Name: name}, k.Object) != nil || c.Get(asking, client.ObjectKey{Name: namespace}, &ns) != nil {
				return Workload{}, false
			}

			return Workload{Annotations: k.Object.GetAnnotations(), Labels: k.Object.GetLabels(), NamespaceLabels: ns.Labels}, true
		}

		return Workload{}, false
	}, nil
}
