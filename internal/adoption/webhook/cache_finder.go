// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/podlimits"
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

	return func(kind, namespace, name string) (Workload, bool, error) {
		return findWorkload(c, kind, namespace, name)
	}, nil
}

// NewCacheLimits returns a reader of the bounds of a namespace from a cache, and starts the informers it needs on every replica.
func NewCacheLimits(ctx context.Context, c cache.Cache) (LimitReader, error) {
	for _, object := range []client.Object{&corev1.LimitRange{}, &corev1.ResourceQuota{}} {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watching %T: %w", object, err)
		}
	}

	return func(namespace string) (podlimits.Rules, error) {
		ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
		defer cancel()

		return podlimits.Read(ctx, c, namespace)
	}, nil
}

// findWorkload reads a workload and its namespace. Only an object that does not exist means "not found": a cache that is not synced may have it.
func findWorkload(reader client.Reader, kind, namespace, name string) (Workload, bool, error) {
	kinds := workload.WatchedKinds()
	i := slices.IndexFunc(kinds, func(k workload.WatchedKind) bool { return k.GVK.Kind == kind })
	if i < 0 {
		return Workload{}, false, nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()

	object := kinds[i].Object
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return Workload{}, false, nil
	}
	if err != nil {
		return Workload{}, false, fmt.Errorf("reading %s %s/%s: %w", kind, namespace, name, err)
	}

	var ns corev1.Namespace
	err = reader.Get(ctx, client.ObjectKey{Name: namespace}, &ns)
	if apierrors.IsNotFound(err) {
		return Workload{}, false, nil
	}
	if err != nil {
		return Workload{}, false, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}

	return Workload{Annotations: object.GetAnnotations(), Labels: object.GetLabels(), NamespaceLabels: ns.Labels}, true, nil
}
