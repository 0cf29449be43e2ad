// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/objectname"
	"crane.io/crane/internal/kube/workload"
)

// Prefixes of the names of proposals that are no metrics of the spec.
const (
	proposalPrediction = "prediction of "
	proposalCron       = "cron "
)

// managedName returns the name of the objects that an autoscaler controls.
func managedName(ehpa string) string {
	return objectname.Shorten(autoscalingv1alpha1.ManagedObjectPrefix + ehpa)
}

// targetKey returns a key that is equal for references to one target, whatever version of its group they name.
func targetKey(ref autoscalingv2.CrossVersionObjectReference) string {
	kind := targetKind(ref)
	return kind.Group + "/" + kind.Kind + "/" + ref.Name
}

// targetKind returns the kind of a target. References to built-in kinds may lack the group.
func targetKind(ref autoscalingv2.CrossVersionObjectReference) schema.GroupVersionKind {
	return workload.KindOf(ref.APIVersion, ref.Kind)
}

// targetRef returns the target of an autoscaler.
func targetRef(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) workload.Ref {
	ref := ehpa.Spec.ScaleTargetRef
	return workload.Ref{
		Namespace:  ehpa.Namespace,
		APIVersion: ref.APIVersion,
		Kind:       ref.Kind,
		Name:       ref.Name,
	}
}

// qualifiedRef returns a target with its apiVersion.
func qualifiedRef(ref autoscalingv2.CrossVersionObjectReference) autoscalingv2.CrossVersionObjectReference {
	ref.APIVersion = targetKind(ref).GroupVersion().String()
	return ref
}
