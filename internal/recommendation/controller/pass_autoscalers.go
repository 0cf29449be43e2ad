// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// effectiveHPAKind is the kind of Crane's own autoscaler.
const effectiveHPAKind = "EffectiveHorizontalPodAutoscaler"

// effectiveHPAs are Crane's own autoscalers of some workloads, read page by page and in no cache. Where the kind is not
// installed there are none.
func (w *passData) effectiveHPAs(ctx context.Context, targets []workload.Workload) (map[identity]autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, error) {
	wanted := map[identity]bool{}
	for _, t := range targets {
		wanted[identityOf(t.Ref, "")] = true
	}
	listing, cancel := context.WithTimeout(ctx, w.listTimeout)
	defer cancel()
	out := map[identity]autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	opts := &client.ListOptions{Limit: pageSize}
	for {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(autoscalingv1alpha1.GroupVersion.WithKind(effectiveHPAKind + "List"))
		err := w.live.List(listing, list, opts)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", effectiveHPAKind, err)
		}
		for i := range list.Items {
			var one autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &one); err != nil {
				continue // It is not valid, and scales nothing.
			}
			to := one.Spec.ScaleTargetRef
			id := identityOf(workload.Ref{Namespace: one.Namespace, APIVersion: to.APIVersion, Kind: to.Kind, Name: to.Name}, "")
			if wanted[id] {
				out[id] = one
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}
