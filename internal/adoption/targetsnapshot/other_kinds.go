// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
)

// AdoptableKind returns the kind of targets whose pods are adopted, with a new object. Watched kinds have all that adoption can do. The pods of
// any other owner are resized in place alone: the webhook for new pods does not know it, and nobody reports its changes. ok is false for built-in
// kinds without pods of their own; an object of a custom kind shows when it is read whether it has any.
func AdoptableKind(gvk schema.GroupVersionKind) (kind workload.WatchedKind, ok bool) {
	if kind, ok = SupportedKind(gvk.Group, gvk.Kind); ok {
		return kind, true
	}

	kind.GVK = gvk
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		kind.Object = &appsv1.ReplicaSet{}
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		kind.Object = &batchv1.Job{}
	case schema.GroupKind{Kind: "ReplicationController"}:
		kind.Object = &corev1.ReplicationController{}
	default:
		if !strings.Contains(gvk.Group, ".") { // A built-in group.
			return workload.WatchedKind{}, false
		}

		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(gvk)
		kind.Object = object
	}

	return kind, true
}

// Watched reports whether the kind of the target is watched.
func (s *TargetSnapshot) Watched() bool {
	_, ok := SupportedKind(s.Kind.GVK.Group, s.Kind.GVK.Kind)
	return ok
}

// readOtherKindFields reads the fields of an object whose kind is not watched.
func (s *TargetSnapshot) readOtherKindFields() {
	switch o := s.Object.(type) {
	case *appsv1.ReplicaSet:
		s.setTemplate(&o.Spec.Template)
		s.selector = o.Spec.Selector
		s.desiredReplicas = ptr.Deref(o.Spec.Replicas, 1)

	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			s.setTemplate(o.Spec.Template)
		}
		s.selector = &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
		s.desiredReplicas = ptr.Deref(o.Spec.Replicas, 1)

	case *batchv1.Job: // It has ever fewer pods, so that none is missing.
		s.setTemplate(&o.Spec.Template)
		s.selector = o.Spec.Selector

	case *unstructured.Unstructured:
		s.readCustomFields(o)
	}
}

// readCustomFields reads what many custom kinds have in common with a Deployment: spec.template, spec.selector, spec.replicas,
// status.observedGeneration and status.updatedReplicas, each if it is there.
func (s *TargetSnapshot) readCustomFields(o *unstructured.Unstructured) {
	template, _, err := workload.CustomTemplate(o)
	if err == nil {
		s.setTemplate(template)
	}

	// The owner decides which pods belong to the target, so that a missing selector only costs time.
	s.selector = &metav1.LabelSelector{}
	if labels, found, err := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels"); found && err == nil {
		s.selector.MatchLabels = labels
	}

	replicas, known, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if known && err == nil {
		s.desiredReplicas = int32(min(max(replicas, 0), 1<<31-1))
	}

	if observed, found := observedGeneration(o); found && observed < o.GetGeneration() {
		s.rolloutInProgress = true
	}

	updated, found, err := unstructured.NestedInt64(o.Object, "status", "updatedReplicas")
	if found && err == nil && known && updated < replicas {
		s.rolloutInProgress = true
	}
}

// observedGeneration returns status.observedGeneration, which is a text in a Rollout.
func observedGeneration(o *unstructured.Unstructured) (generation int64, found bool) {
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, "status", "observedGeneration")
	if !found || err != nil {
		return 0, false
	}

	generation, err = strconv.ParseInt(fmt.Sprint(value), 10, 64)
	return generation, err == nil
}

// readPodTemplate takes the newest pod for the template of a target without one. While it is adopted, the containers have the original size: that
// of the pod is Crane's.
func (s *TargetSnapshot) readPodTemplate(state adoption.State) {
	if s.podSpec != nil || len(s.Pods) == 0 {
		return
	}

	newest := slices.MaxFunc(s.Pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	s.podSpec = newest.Spec.DeepCopy()
	if state.Phase != adoption.Untouched {
		ApplySize(s.podSpec, state.Original)
	}
}

// otherKindBlockReason returns why nothing is changed of a target whose kind is not watched.
func otherKindBlockReason(s *TargetSnapshot, in *adoption.Input) BlockReason {
	kind := s.Kind.GVK.Kind
	switch owner := metav1.GetControllerOfNoCopy(s.Object); {
	case owner != nil && slices.Contains([]string{"ReplicaSet", "ReplicationController", "Job"}, kind):
		return BlockReason{ReasonNotSupported, fmt.Sprintf("this %s belongs to %s %s, whose pods are adopted instead", kind, owner.Kind, owner.Name)}
	case in.Reach == adoption.NewPods || in.Reach == adoption.Recreate:
		return BlockReason{ReasonNotSupported, fmt.Sprintf("new pods of a %s get the size of their template, so that reach %s changes nothing", kind, in.Reach)}
	case len(s.Pods) == 0:
		return BlockReason{ReasonNotSupported, fmt.Sprintf("this %s has no pods, so that nothing can be resized", kind)}
	}

	return BlockReason{}
}

// limitToInPlace removes from the input of a target whose kind is not watched what adoption cannot do with it.
func limitToInPlace(s *TargetSnapshot, in *adoption.Input) {
	in.Reach = adoption.InPlace
	in.NewPodsUnsized = fmt.Sprintf("new pods of a %s get the size of their template, and the adopted one in place once they run", s.Kind.GVK.Kind)

	if in.UpdateTemplate {
		in.UpdateTemplate = false
		in.Bounds = append(slices.Clip(in.Bounds), fmt.Sprintf("the template of a %s is not changed", s.Kind.GVK.Kind))
	}
}

// ownerKinds returns the kinds of objects through which a target has its pods; none if it has them itself.
func (s *TargetSnapshot) ownerKinds() []schema.GroupVersionKind {
	switch s.Object.(type) {
	case *appsv1.Deployment:
	case *unstructured.Unstructured:
		if s.Kind.GVK.Kind == "DeploymentConfig" {
			return []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ReplicationController")}
		}

	default:
		return nil
	}

	return []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("ReplicaSet")}
}
