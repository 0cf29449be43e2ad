// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/effectiveresources"
)

// maxObservedPods is the number of pods that are read of a workload to find what another webhook gives them.
const maxObservedPods = 10

// withObserved returns a workload with the requests that its pods have beside those of its template and its LimitRanges. Pods are read
// only where a container has no request, and not while adoption sizes them: what they have then is Crane's.
func (l *Lister) withObserved(ctx context.Context, w Workload, obj client.Object, ranges []corev1.LimitRange) (Workload, error) {
	selector := selectorOf(obj)
	_, unrequested := w.PodRequests()
	if unrequested == "" || w.Replicas == 0 || selector == nil || w.Annotations[analysisv1alpha1.AnnotationAdoption] != "" {
		return w, nil
	}

	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || parsed.Empty() {
		return w, nil //nolint:nilerr // The API server admits no such selector.
	}

	var pods corev1.PodList
	err = l.Sources(podKind()).Reader.List(ctx, &pods, &client.ListOptions{Namespace: w.Namespace, LabelSelector: parsed, Limit: maxObservedPods})
	if apierrors.IsForbidden(err) && l.WithoutDefaults != nil {
		l.WithoutDefaults(err)
		return w, nil
	}
	if err != nil {
		return w, fmt.Errorf("listing the pods of %s: %w", w.Ref, err)
	}

	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !mayOwn(w, &p) })
	template, _, err := podSpec(obj)
	if err != nil {
		return w, fmt.Errorf("reading %s: %w", w.Ref, err)
	}

	return w.withPod(template, effectiveresources.WithObserved(effectiveresources.NewPod(template, ranges), pods.Items)), nil
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
