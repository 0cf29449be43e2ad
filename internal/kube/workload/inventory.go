// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Inventory lists everything that runs pods in some namespaces (empty: all), custom kinds included, each workload once
// and the runs of one template once. It is
// meant for a direct client: objects are read page by page, and of pods, ReplicaSets and Jobs, of which there are many more than
// workloads, only the metadata.
func (l *Lister) Inventory(ctx context.Context, namespaces []string) ([]Workload, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}

	var all []Workload
	for _, ns := range namespaces {
		found, err := l.inventory(ctx, ns)
		if err != nil {
			return nil, err
		}

		all = append(all, found...)
	}

	return all, nil
}

func (l *Lister) inventory(ctx context.Context, namespace string) ([]Workload, error) {
	var out []Workload
	seen := map[Ref]bool{}
	keep := func(w Workload) error {
		if key := withoutVersion(w.Ref); !seen[key] {
			seen[key] = true
			out = append(out, w)
		}

		return nil
	}

	for _, kind := range templateKinds() {
		if err := l.List(ctx, Query{Kind: kind, Namespace: namespace}, keep); err != nil {
			return nil, err
		}
	}

	rest, err := l.otherOwners(ctx, namespace)
	if err != nil {
		return nil, err
	}

	for _, s := range rest {
		if seen[withoutVersion(s.owner)] {
			continue
		}

		w, err := l.fromSample(ctx, s)
		if apierrors.IsNotFound(err) {
			continue // Deleted since it was listed.
		}
		if err != nil {
			return nil, err
		}

		w.Ref = w.RunGroup()
		if err := keep(w); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// templateKinds are the built-in kinds that are always the workload of their pods.
func templateKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		batchv1.SchemeGroupVersion.WithKind("CronJob"),
	}
}

// sample is a workload that was found through one of its pods.
type sample struct {
	owner Ref
	pod   client.ObjectKey
}

// owners reads the ReplicaSets, Jobs and ReplicationControllers between the pods of a namespace and their workloads.
func (l *Lister) owners(ctx context.Context, namespace string) (Owners, error) {
	var owners Owners
	for _, kind := range []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		batchv1.SchemeGroupVersion.WithKind("Job"),
		corev1.SchemeGroupVersion.WithKind("ReplicationController"),
	} {
		err := l.eachMeta(ctx, kind, namespace, func(o client.Object) { owners.Add(kind.Kind, o) })
		if apierrors.IsForbidden(err) && kind.Kind == "ReplicationController" { // Few clusters have them: without the right, each is a workload.
			continue
		}
		if err != nil {
			return Owners{}, err
		}
	}

	return owners, nil
}

// otherOwners finds the workloads of a namespace's pods that are of none of the template kinds, each with one pod.
func (l *Lister) otherOwners(ctx context.Context, namespace string) ([]sample, error) {
	owners, err := l.owners(ctx, namespace)
	if err != nil {
		return nil, err
	}

	var out []sample
	seen := map[Ref]bool{}
	err = l.eachMeta(ctx, podKind(), namespace, func(o client.Object) {
		owner, ok := owners.Of(o)
		if !ok || seen[owner.RunGroup()] || slices.ContainsFunc(templateKinds(), func(k schema.GroupVersionKind) bool {
			return k.Kind == owner.Kind && k.GroupVersion().String() == owner.APIVersion
		}) {
			return
		}

		seen[owner.RunGroup()] = true
		out = append(out, sample{owner: owner, pod: client.ObjectKeyFromObject(o)})
	})

	return out, err
}

func (l *Lister) eachMeta(ctx context.Context, kind schema.GroupVersionKind, namespace string, visit func(client.Object)) error {
	return eachPage(ctx, l.Sources(kind), newMetaList(kind), Query{Kind: kind, Namespace: namespace}, func(o client.Object) error {
		visit(o)
		return nil
	})
}

// newMetaList returns an empty list of metadata.
func newMetaList(kind schema.GroupVersionKind) func() (client.ObjectList, error) {
	return func() (client.ObjectList, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list, nil
	}
}

// fromSample reads the owner; if that is not possible (no template and no scale, no right to read it, the kind removed) the pod
// determines the workload's containers.
func (l *Lister) fromSample(ctx context.Context, s sample) (Workload, error) {
	gv, err := schema.ParseGroupVersion(s.owner.APIVersion)
	if err != nil {
		return Workload{}, fmt.Errorf("owner of pod %s: %w", s.pod, err)
	}

	w, err := l.Get(ctx, gv.WithKind(s.owner.Kind), client.ObjectKey{Namespace: s.owner.Namespace, Name: s.owner.Name})
	if err == nil {
		return w, nil
	}
	if !errors.Is(err, ErrNoTemplate) && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return Workload{}, err
	}

	pod := &corev1.Pod{}
	if err := l.Sources(podKind()).Reader.Get(ctx, s.pod, pod); err != nil {
		return Workload{}, fmt.Errorf("reading pod %s: %w", s.pod, err)
	}

	return Workload{Ref: s.owner}.withPod(&pod.Spec, &pod.Spec), nil
}

// withoutVersion returns a reference that is comparable across the versions of one group.
func withoutVersion(r Ref) Ref {
	r.APIVersion = GroupOf(r.APIVersion, r.Kind)
	return r
}
