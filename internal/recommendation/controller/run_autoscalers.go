// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// effectiveHPAKind is the kind of Crane's horizontal autoscaler.
const effectiveHPAKind = "EffectiveHorizontalPodAutoscaler"

// effectiveHPAs returns the EffectiveHorizontalPodAutoscalers of some workloads, read from the API server; none if the kind is
// not installed.
func (d *runData) effectiveHPAs(ctx context.Context, targets []workload.Workload) (map[identity]autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, error) {
	wanted := map[identity]bool{}
	for _, t := range targets {
		wanted[identityOf(t.Ref, "")] = true
	}

	out := map[identity]autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(autoscalingv1alpha1.GroupVersion.WithKind(effectiveHPAKind + "List"))

	err := listEach(ctx, d, list, func(o *unstructured.Unstructured) {
		var scaler autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &scaler); err != nil {
			return // It is invalid and scales nothing.
		}

		to := scaler.Spec.ScaleTargetRef
		id := identityOf(workload.Ref{
			Namespace:  scaler.Namespace,
			APIVersion: to.APIVersion,
			Kind:       to.Kind,
			Name:       to.Name,
		}, "")
		if wanted[id] {
			out[id] = scaler
		}
	})

	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}

	return out, err
}
