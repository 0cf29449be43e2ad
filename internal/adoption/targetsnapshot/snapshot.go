// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/effectiveresources"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/podlimits"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
)

// pageSize is the number of pods per list request.
const pageSize = 500

// TargetSnapshot is the state of a target as read from the API server. A cache could lag behind Crane's own changes.
type TargetSnapshot struct {
	Kind workload.WatchedKind
	// Object is the target; Pods are its pods that have not ended.
	Object client.Object
	Pods   []corev1.Pod

	podSpec *corev1.PodSpec
	// podMeta is the metadata of the pod template.
	podMeta *metav1.ObjectMeta
	limits  podlimits.Rules
	// newPodSpec is the pod spec of new pods without adoption, with the defaults that the API server adds.
	newPodSpec *corev1.PodSpec
	// selector of its pods; nil for kinds without running pods.
	selector *metav1.LabelSelector
	// podOwners are the controllers of its pods: the target, or the ReplicaSets of a Deployment beside it.
	podOwners map[types.UID]bool
	replicas  *int32
	// desiredReplicas is the number of pods that the target should have.
	desiredReplicas   int32
	rolloutInProgress bool
	terminating       bool
	optedOut          bool

	disruptionsAllowed int
	minHealthy         int32
	autoscaler         targetAutoscaler
}

// SupportedKind returns the kind with a new object; ok is false if pods of the kind are not adopted.
func SupportedKind(group, kind string) (workload.WatchedKind, bool) {
	for _, k := range workload.WatchedKinds() {
		if k.GVK.Group == group && k.GVK.Kind == kind {
			return k, true
		}
	}

	return workload.WatchedKind{}, false
}

// StateAnnotations returns the annotation of the adoption state by type.
func StateAnnotations() map[analysisv1alpha1.AnalysisType]string {
	return map[analysisv1alpha1.AnalysisType]string{
		analysisv1alpha1.AnalysisTypeResource: analysisv1alpha1.AnnotationAdoption,
		analysisv1alpha1.AnalysisTypeReplicas: analysisv1alpha1.AnnotationReplicasAdoption,
	}
}

// ReadState returns the state of a type that is stored on an object.
func ReadState(o metav1.Object, analysisType analysisv1alpha1.AnalysisType) (adoption.State, error) {
	return adoption.ParseState(o.GetAnnotations()[StateAnnotations()[analysisType]])
}

// Read reads a target and its namespace.
func (r SnapshotReader) Read(ctx context.Context, kind workload.WatchedKind, key client.ObjectKey) (*TargetSnapshot, error) {
	s := &TargetSnapshot{Kind: kind, Object: kind.Object, disruptionsAllowed: -1}
	if err := r.Live.Get(ctx, key, s.Object); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind.GVK.Kind, key, err)
	}

	s.readKindFields()
	var ns corev1.Namespace
	if err := r.Live.Get(ctx, client.ObjectKey{Name: key.Namespace}, &ns); err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", key.Namespace, err)
	}

	s.terminating = ns.DeletionTimestamp != nil || s.Object.GetDeletionTimestamp() != nil
	s.optedOut = OptedOut(ns.Labels) || OptedOut(s.Object.GetLabels())
	return s, nil
}

// OptedOut reports whether the labels of a workload or its namespace exclude it from adoption.
func OptedOut(labels map[string]string) bool {
	return AdoptionDisabled(labels) || optout.Labeled(labels)
}

// AdoptionDisabled reports whether the labels of a workload or its namespace exclude it from adoption alone.
func AdoptionDisabled(labels map[string]string) bool {
	return labels[analysisv1alpha1.LabelAdoption] == analysisv1alpha1.LabelAdoptionOff
}

// String returns kind, namespace and name for messages.
func (s *TargetSnapshot) String() string {
	return fmt.Sprintf("%s %s/%s", s.Kind.GVK.Kind, s.Object.GetNamespace(), s.Object.GetName())
}

// BudgetKey returns the key of the target in the budgets.
func (s *TargetSnapshot) BudgetKey(analysisType analysisv1alpha1.AnalysisType) adoption.Key {
	return adoption.Key{
		Namespace: s.Object.GetNamespace(),
		Kind:      s.Kind.GVK.Kind,
		Name:      s.Object.GetName(),
		Type:      string(analysisType),
	}
}

// setTemplate sets the pod template of the target.
func (s *TargetSnapshot) setTemplate(template *corev1.PodTemplateSpec) {
	s.podSpec = &template.Spec
	s.podMeta = &template.ObjectMeta
}

// readKindFields reads the fields that depend on the kind of the object.
func (s *TargetSnapshot) readKindFields() {
	switch o := s.Object.(type) {
	case *appsv1.Deployment:
		s.setTemplate(&o.Spec.Template)
		s.selector = o.Spec.Selector
		s.replicas = o.Spec.Replicas
		want := ptr.Deref(o.Spec.Replicas, 1)
		s.desiredReplicas = want
		s.rolloutInProgress = o.Status.ObservedGeneration < o.Generation || o.Status.UpdatedReplicas != want || o.Status.Replicas != want

	case *appsv1.StatefulSet:
		s.setTemplate(&o.Spec.Template)
		s.selector = o.Spec.Selector
		s.replicas = o.Spec.Replicas
		s.desiredReplicas = ptr.Deref(o.Spec.Replicas, 1)
		s.rolloutInProgress = o.Status.ObservedGeneration < o.Generation || o.Status.CurrentRevision != o.Status.UpdateRevision && o.Status.UpdatedReplicas < updatedByRollout(o)

	case *appsv1.DaemonSet:
		s.setTemplate(&o.Spec.Template)
		s.selector = o.Spec.Selector
		s.desiredReplicas = o.Status.DesiredNumberScheduled
		onDelete := o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
		s.rolloutInProgress = o.Status.ObservedGeneration < o.Generation || !onDelete && o.Status.UpdatedNumberScheduled < o.Status.DesiredNumberScheduled

	case *batchv1.CronJob:
		s.setTemplate(&o.Spec.JobTemplate.Spec.Template)
	default:
		s.readOtherKindFields()
	}
}

// updatedByRollout returns the number of pods that a roll-out of a StatefulSet replaces by itself: none with strategy OnDelete, and none below its
// partition. The others keep their revision until somebody deletes them, which is no roll-out.
func updatedByRollout(set *appsv1.StatefulSet) int32 {
	strategy := set.Spec.UpdateStrategy
	if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return 0
	}

	replicas := ptr.Deref(set.Spec.Replicas, 1)
	if strategy.RollingUpdate == nil {
		return replicas
	}

	return max(0, replicas-ptr.Deref(strategy.RollingUpdate.Partition, 0))
}

// readPods lists the pods of the target that have not ended.
func (r SnapshotReader) readPods(ctx context.Context, s *TargetSnapshot) error {
	if s.selector == nil {
		return nil
	}

	selector, err := metav1.LabelSelectorAsSelector(s.selector)
	if err != nil {
		return fmt.Errorf("selector of %s: %w", s, err)
	}

	// A selector may match pods of others, so the owner decides; pods of a Deployment belong to its ReplicaSets.
	s.podOwners = map[types.UID]bool{s.Object.GetUID(): true}
	for _, kind := range s.ownerKinds() {
		if err := r.addOwners(ctx, s, kind, selector); err != nil {
			return err
		}
	}

	next := ""
	for {
		var list corev1.PodList
		err := r.Live.List(ctx, &list, client.InNamespace(s.Object.GetNamespace()), client.MatchingLabelsSelector{Selector: selector},
			client.Limit(pageSize), client.Continue(next))
		if err != nil {
			return fmt.Errorf("listing the pods of %s: %w", s, err)
		}

		for i := range list.Items {
			pod := &list.Items[i]
			if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && s.podOwners[owner.UID] && !PodEnded(pod) {
				s.Pods = append(s.Pods, *pod)
			}
		}

		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// addOwners adds the objects of a kind that belong to the target, such as the ReplicaSets of a Deployment, to the owners of its pods.
func (r SnapshotReader) addOwners(ctx context.Context, s *TargetSnapshot, kind schema.GroupVersionKind, selector labels.Selector) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))

	err := r.Live.List(ctx, list, client.InNamespace(s.Object.GetNamespace()), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return fmt.Errorf("listing the %ss of %s: %w", kind.Kind, s, err)
	}

	for i := range list.Items {
		if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil && owner.UID == s.Object.GetUID() {
			s.podOwners[list.Items[i].UID] = true
		}
	}

	return nil
}

// readBudgets reads what the disruption budgets of the pods allow.
func (r SnapshotReader) readBudgets(ctx context.Context, s *TargetSnapshot) error {
	if len(s.Pods) == 0 {
		return nil
	}

	var list policyv1.PodDisruptionBudgetList
	if err := r.Live.List(ctx, &list, client.InNamespace(s.Object.GetNamespace())); err != nil {
		return fmt.Errorf("listing the disruption budgets of %s: %w", s.Object.GetNamespace(), err)
	}

	for i := range list.Items {
		b := &list.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !slices.ContainsFunc(s.Pods, func(p corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) }) {
			continue // The API server admits no budget with an invalid selector.
		}

		if allowed := int(b.Status.DisruptionsAllowed); s.disruptionsAllowed < 0 || allowed < s.disruptionsAllowed {
			s.disruptionsAllowed = allowed
		}
		s.minHealthy = max(s.minHealthy, b.Status.DesiredHealthy)
	}

	return nil
}

// setNewPodSpec sets what pods get without adoption. Pods of an adopted workload do not say it.
func (s *TargetSnapshot) setNewPodSpec(adopted bool) {
	if s.podSpec == nil {
		return
	}

	s.newPodSpec = effectiveresources.NewPod(s.podSpec, s.limits.LimitRanges)
	if !adopted {
		s.newPodSpec = effectiveresources.WithObserved(s.newPodSpec, s.Pods)
		s.newPodSpec = effectiveresources.WithChanged(s.newPodSpec, podsOfTemplate(s))
	}
}

// podsOfTemplate returns the pods that were created with the present template, as far as that is known: those of earlier templates may remain.
func podsOfTemplate(s *TargetSnapshot) []corev1.Pod {
	if s.rolloutInProgress {
		return nil
	}

	label, revision := "", ""
	switch o := s.Object.(type) {
	case *appsv1.StatefulSet:
		label = appsv1.StatefulSetRevisionLabel
		revision = o.Status.UpdateRevision
	case *appsv1.DaemonSet:
		label = extensionsv1beta1.DaemonSetTemplateGenerationKey
		revision = o.Annotations[appsv1.DeprecatedTemplateGeneration]
	default:
		return s.Pods
	}

	return slices.DeleteFunc(slices.Clone(s.Pods), func(p corev1.Pod) bool { return revision == "" || p.Labels[label] != revision })
}

// template returns the present size in the pod template, and effective that of new pods, both limited to what the sizes contain.
func (s *TargetSnapshot) template(sizes ...adoption.Size) (template, effective adoption.Size) {
	all := adoption.Size{}
	for _, size := range sizes {
		if size.Replicas != nil {
			template = adoption.Size{Replicas: new(ptr.Deref(s.replicas, 1))}
			return template, template
		}

		if all.Containers == nil {
			all = size.Clone()
			continue
		}

		maps.Copy(all.Containers, size.Clone().Containers)
	}

	if s.podSpec == nil {
		return adoption.Size{}, adoption.Size{}
	}

	return TemplateSize(s.podSpec, all), TemplateSize(s.newPodSpec, all)
}
