// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optoutlist reads the namespaces and workloads with the label crane.io/opt-out, and publishes them for agents.
package optoutlist

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/workload"
)

// interval is the time after which the list is written again if nothing changes, in case another client changed it.
const interval = time.Minute

// Read returns the namespaces and the watched kinds of workloads that have the label.
func Read(ctx context.Context, from client.Reader, scheme *runtime.Scheme) (optout.Set, error) {
	out := optout.Set{}
	selector := client.MatchingLabels{analysisv1alpha1.LabelOptOut: "true"}
	var namespaces corev1.NamespaceList
	if err := from.List(ctx, &namespaces, selector, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces that have opted out: %w", err)
	}

	for i := range namespaces.Items {
		out.AddNamespace(namespaces.Items[i].Name)
	}

	for _, kind := range workload.WatchedKinds() {
		newList, err := scheme.New(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
		if err != nil {
			return nil, fmt.Errorf("a list of %s: %w", kind.GVK.Kind, err)
		}

		list, ok := newList.(client.ObjectList)
		if !ok {
			return nil, fmt.Errorf("%T is not a list", newList)
		}

		if err := from.List(ctx, list, selector, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing workloads of kind %s that have opted out: %w", kind.GVK.Kind, err)
		}

		err = meta.EachListItem(list, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err == nil {
				out.Add(optout.Workload{Kind: kind.GVK.Kind, Namespace: object.GetNamespace(), Name: object.GetName()})
			}

			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading the list of %s: %w", kind.GVK.Kind, err)
		}
	}

	return out, nil
}

// objects returns an object of each kind that has the label.
func objects() []client.Object {
	out := []client.Object{&corev1.Namespace{}}
	for _, kind := range workload.WatchedKinds() {
		out = append(out, kind.Object)
	}

	return out
}

// Watch adds the kinds that Read lists to a cache, which need not have started.
func Watch(ctx context.Context, c cache.Cache) error {
	for _, o := range objects() {
		if _, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T: %w", o, err)
		}
	}

	return nil
}

// Publisher writes the list to the ConfigMap that agents watch. It is a manager.Runnable of the leader.
type Publisher struct {
	// Namespace is Crane's own.
	Namespace string
	Cache     cache.Cache
	Client    client.Client
	Clock     clock.WithTicker
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Publisher) NeedLeaderElection() bool { return true }

// Start writes the list whenever a label changes, and at each interval, until ctx ends.
func (p Publisher) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	if err := p.watch(ctx, changed); err != nil {
		return err
	}

	ticker := p.Clock.NewTicker(interval)
	defer ticker.Stop()

	for {
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).WithName("opt-outs").Error(err, "publishing the list of workloads that have opted out; agents keep the previous one")
		}

		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C():
		}
	}
}

// watch signals changes of the label.
func (p Publisher) watch(ctx context.Context, changed chan<- struct{}) error {
	signal := func(relevant bool) {
		if !relevant {
			return
		}

		select {
		case changed <- struct{}{}:
		default: // One is pending.
		}
	}

	for _, o := range objects() {
		informer, err := p.Cache.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watching %T: %w", o, err)
		}

		if _, err := informer.AddEventHandler(clientcache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { signal(labeled(o)) },
			UpdateFunc: func(before, after any) { signal(labeled(before) != labeled(after)) },
			DeleteFunc: func(o any) {
				if tombstone, ok := o.(clientcache.DeletedFinalStateUnknown); ok {
					o = tombstone.Obj
				}
				signal(labeled(o))
			},
		}); err != nil {
			return fmt.Errorf("watching %T: %w", o, err)
		}
	}

	return nil
}

// labeled reports whether an object of an informer has the label crane.io/opt-out.
func labeled(o any) bool {
	object, err := meta.Accessor(o) // It fails only for values that are no API objects.
	return err == nil && optout.Labeled(object.GetLabels())
}

// publish writes the list.
func (p Publisher) publish(ctx context.Context) error {
	set, err := Read(ctx, p.Cache, p.Client.Scheme())
	if err != nil {
		return err
	}

	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: optout.ConfigMapName},
		Data:       map[string]string{optout.KeyWorkloads: set.Encode()},
	}

	raw, err := json.Marshal(cm)
	if err != nil {
		return fmt.Errorf("encoding ConfigMap %s: %w", cm.Name, err)
	}

	if err := p.Client.Patch(ctx, cm, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner("craned-opt-outs"), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", p.Namespace, cm.Name, err)
	}

	return nil
}
