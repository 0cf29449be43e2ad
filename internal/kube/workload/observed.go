// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/effectiveresources"
)

// maxObservedPods is the number of pods that are read of a workload to find what another webhook gives them.
const maxObservedPods = 10

// maxPodLists is the number of workloads of a namespace whose pods are listed by their selectors. For more of them, all pods of the namespace are
// listed once.
const maxPodLists = 3

// namespacePods are pods of a namespace, some of each controller.
type namespacePods struct {
	// lists counts the lists by selector; all reports that byOwner has the pods of all controllers.
	lists   int
	all     bool
	byOwner map[ownerKey][]corev1.Pod
}

type ownerKey struct{ kind, name string }

// withObserved returns a workload with the requests that its pods have beside those of its template and its LimitRanges. Pods are read
// only where a container has no request, and not while adoption sizes them: what they have then is Crane's.
func (l *Lister) withObserved(ctx context.Context, w Workload, obj client.Object, ranges []corev1.LimitRange, defaults *defaults) (Workload, error) {
	selector := selectorOf(obj)
	_, unrequested := w.PodRequests()
	if unrequested == "" || w.Replicas == 0 || selector == nil || w.Annotations[analysisv1alpha1.AnnotationAdoption] != "" {
		return w, nil
	}

	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || parsed.Empty() {
		return w, nil //nolint:nilerr // The API server admits no such selector.
	}

	pods, err := defaults.podsOf(ctx, w, parsed)
	if apierrors.IsForbidden(err) && l.WithoutDefaults != nil {
		l.WithoutDefaults(err)
		return w, nil
	}
	if err != nil {
		return w, fmt.Errorf("listing the pods of %s: %w", w.Ref, err)
	}

	template, _, err := podSpec(obj)
	if err != nil {
		return w, fmt.Errorf("reading %s: %w", w.Ref, err)
	}

	return w.withPod(template, effectiveresources.WithObserved(effectiveresources.NewPod(template, ranges), pods)), nil
}

// podsOf returns some pods of a workload.
func (d *defaults) podsOf(ctx context.Context, w Workload, selector labels.Selector) ([]corev1.Pod, error) {
	cached := d.pods[w.Namespace]
	if cached == nil {
		cached = &namespacePods{}
		d.pods[w.Namespace] = cached
	}

	if cached.lists < maxPodLists {
		cached.lists++

		var list corev1.PodList
		err := d.lister.Sources(podKind()).Reader.List(ctx, &list, &client.ListOptions{Namespace: w.Namespace, LabelSelector: selector, Limit: maxObservedPods})
		return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !mayOwn(w, &p) }), err
	}

	if !cached.all {
		byOwner, err := d.lister.podsByOwner(ctx, w.Namespace)
		if err != nil {
			return nil, err
		}

		cached.byOwner = byOwner
		cached.all = true
	}

	var out []corev1.Pod
	for _, pods := range cached.byOwner {
		if !mayOwn(w, &pods[0]) { // All have the same controller.
			continue
		}

		for i := range pods {
			if selector.Matches(labels.Set(pods[i].Labels)) {
				out = append(out, pods[i])
			}
		}
	}

	return out, nil
}

// podsByOwner lists the pods of a namespace page by page and returns, of up to maxObservedPods of each controller, what WithObserved reads.
func (l *Lister) podsByOwner(ctx context.Context, namespace string) (map[ownerKey][]corev1.Pod, error) {
	out := map[ownerKey][]corev1.Pod{}
	err := l.each(ctx, Query{Kind: podKind(), Namespace: namespace}, func(o client.Object) error {
		pod, ok := o.(*corev1.Pod)
		owner := metav1.GetControllerOfNoCopy(o)
		if !ok || owner == nil {
			return nil
		}

		key := ownerKey{owner.Kind, owner.Name}
		if len(out[key]) < maxObservedPods {
			out[key] = append(out[key], resourcesOfPod(pod))
		}

		return nil
	})

	return out, err
}

// resourcesOfPod returns a pod without what takes memory and says nothing about its resources.
func resourcesOfPod(pod *corev1.Pod) corev1.Pod {
	strip := func(containers []corev1.Container) []corev1.Container {
		out := make([]corev1.Container, len(containers))
		for i := range containers {
			c := &containers[i]
			out[i] = corev1.Container{Name: c.Name, Resources: *c.Resources.DeepCopy(), RestartPolicy: c.RestartPolicy}
		}

		return out
	}

	out := corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: strip(pod.Spec.InitContainers),
		Containers:     strip(pod.Spec.Containers),
		Resources:      pod.Spec.Resources.DeepCopy(),
		Overhead:       pod.Spec.Overhead.DeepCopy(),
	}}
	out.Name = pod.Name
	out.Namespace = pod.Namespace
	out.Labels = maps.Clone(pod.Labels)
	out.CreationTimestamp = pod.CreationTimestamp
	out.OwnerReferences = slices.Clone(pod.OwnerReferences)
	for _, f := range pod.ManagedFields {
		out.ManagedFields = append(out.ManagedFields, metav1.ManagedFieldsEntry{Manager: f.Manager, Subresource: f.Subresource})
	}

	return out
}

// mayOwn reports whether a pod that the selector of a workload matches is not one of another workload, by the names of its owner.
func mayOwn(w Workload, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case owner == nil:
		return false
	case w.Kind == "Deployment":
		return owner.Kind == "ReplicaSet" && strings.HasPrefix(owner.Name, w.Name+"-")
	case owner.Kind == w.Kind:
		return owner.Name == w.Name
	}

	return true // A custom kind may have pods through others.
}

// selectorOf returns the selector of the pods of a workload; nil for none.
func selectorOf(obj client.Object) *metav1.LabelSelector {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return o.Spec.Selector
	case *appsv1.StatefulSet:
		return o.Spec.Selector
	case *appsv1.DaemonSet:
		return o.Spec.Selector
	case *appsv1.ReplicaSet:
		return o.Spec.Selector
	case *unstructured.Unstructured:
		raw, found, err := unstructured.NestedMap(o.Object, "spec", "selector")
		var out metav1.LabelSelector
		if err != nil || !found || runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &out) != nil {
			return nil
		}

		return &out
	}

	return nil
}
