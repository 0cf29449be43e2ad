// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

const (
	// quiet is the time without changes after which everything is taken to be done; longer than pollInterval.
	quiet = 1300 * time.Millisecond
	// maxSettle bounds the wait for it: failed creations are retried for ever.
	maxSettle = 12 * time.Second
)

// world is what the checks see of the cluster: a cache of its objects.
type world struct {
	cache.Cache
	// changed is the time of the last change in nanoseconds.
	changed atomic.Int64
	// podChanged is called with the versions of each changed pod.
	podChanged atomic.Pointer[func(before, after *corev1.Pod)]
}

// watchWorld fills the cache until the test ends.
func watchWorld(t *testing.T) *world {
	t.Helper()

	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}

	c, err := cache.New(control.Config(), cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	w := &world{Cache: c}
	w.changed.Store(time.Now().UnixNano())
	for _, o := range []client.Object{
		&corev1.Pod{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &analysisv1alpha1.Recommendation{},
	} {
		informer, err := c.GetInformer(t.Context(), o, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { w.touch() },
				UpdateFunc: w.update,
				DeleteFunc: func(any) { w.touch() },
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	if !c.WaitForCacheSync(ctx) {
		t.Fatal("WaitForCacheSync = false, want a filled cache")
	}

	return w
}

func (w *world) touch() { w.changed.Store(time.Now().UnixNano()) }

func (w *world) update(before, after any) {
	older, ok := before.(client.Object)
	newer, isObject := after.(client.Object)
	if !ok || !isObject || older.GetResourceVersion() == newer.GetResourceVersion() {
		return
	}

	w.touch()
	oldPod, ok := before.(*corev1.Pod)
	newPod, isPod := after.(*corev1.Pod)
	if handler := w.podChanged.Load(); ok && isPod && handler != nil {
		(*handler)(oldPod, newPod)
	}
}

// settle waits until nothing changes and craned writes nothing.
func (w *world) settle(ctx context.Context, writes *recorder) error {
	deadline := time.Now().Add(maxSettle)
	began := time.Now()
	for {
		last := time.Unix(0, max(w.changed.Load(), writes.last.Load(), began.UnixNano()))
		if time.Since(last) >= quiet && writes.running.Load() == 0 || time.Now().After(deadline) {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// podsOf returns the pods of a workload that have not ended.
func (w *world) podsOf(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := w.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": name}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s/%s: %w", namespace, name, err)
	}

	out := list.Items[:0]
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			out = append(out, p)
		}
	}

	return out, nil
}

// template is the pod template of a workload.
func template(o client.Object) (*corev1.PodTemplateSpec, error) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template, nil
	case *appsv1.StatefulSet:
		return &o.Spec.Template, nil
	case *appsv1.DaemonSet:
		return &o.Spec.Template, nil
	}

	return nil, errors.New("the kind has no pod template")
}

// emptyWorkload returns an object of a kind to read into.
func emptyWorkload(kind string) client.Object {
	switch kind {
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	case "DaemonSet":
		return &appsv1.DaemonSet{}
	}

	return &appsv1.Deployment{}
}
