// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	shared "crane.io/crane/internal/adoption"
	"crane.io/crane/internal/controller/targets"
	"crane.io/crane/internal/workload"
	"crane.io/crane/pkg/adoption"
)

// pageSize is how many pods are listed at once.
const pageSize = 500

// scene is a target as one look sees it, read from the API server: what a cache shows may be older than what was done.
type scene struct {
	key    targets.Key
	gvk    workload.WatchedKind
	object client.Object
	spec   *corev1.PodSpec
	// selector of its pods; nil where it keeps none running.
	selector *metav1.LabelSelector
	replicas *int32
	rolling  bool
	ending   bool
	optedOut bool

	pods        []corev1.Pod
	disruptions int
	least       int32
}

// observe reads a target; it is nil where its kind is none whose pods are adopted.
func (r *Reconciler) observe(ctx context.Context, key targets.Key) (*scene, error) {
	s := &scene{key: key, disruptions: -1}
	for _, kind := range workload.WatchedKinds() {
		if kind.GVK.Group == key.Group && kind.GVK.Kind == key.Kind {
			s.gvk, s.object = kind, kind.Object
		}
	}
	if s.object == nil {
		return nil, nil
	}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, s.object); err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", key.Kind, key.Namespace, key.Name, err)
	}
	s.describe()
	var ns corev1.Namespace
	if err := r.Live.Get(ctx, client.ObjectKey{Name: key.Namespace}, &ns); err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", key.Namespace, err)
	}
	off := func(o metav1.Object) bool {
		return o.GetLabels()[analysisv1alpha1.LabelAdoption] == analysisv1alpha1.LabelAdoptionOff
	}
	s.ending = ns.DeletionTimestamp != nil || s.object.GetDeletionTimestamp() != nil
	s.optedOut = off(&ns) || off(s.object)
	return s, nil
}

// describe takes from the object what its kind has.
func (s *scene) describe() {
	switch o := s.object.(type) {
	case *appsv1.Deployment:
		s.spec, s.selector, s.replicas = &o.Spec.Template.Spec, o.Spec.Selector, o.Spec.Replicas
		want := int32(1)
		if o.Spec.Replicas != nil {
			want = *o.Spec.Replicas
		}
		s.rolling = o.Status.ObservedGeneration < o.Generation || o.Status.UpdatedReplicas != want || o.Status.Replicas != want
	case *appsv1.StatefulSet:
		s.spec, s.selector, s.replicas = &o.Spec.Template.Spec, o.Spec.Selector, o.Spec.Replicas
		s.rolling = o.Status.ObservedGeneration < o.Generation || o.Status.CurrentRevision != o.Status.UpdateRevision
	case *appsv1.DaemonSet:
		s.spec, s.selector = &o.Spec.Template.Spec, o.Spec.Selector
		s.rolling = o.Status.ObservedGeneration < o.Generation || o.Status.UpdatedNumberScheduled < o.Status.DesiredNumberScheduled
	case *batchv1.CronJob:
		s.spec = &o.Spec.JobTemplate.Spec.Template.Spec
	}
}

// readPods lists the pods of the target that have not ended.
func (r *Reconciler) readPods(ctx context.Context, s *scene) error {
	if s.selector == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.selector)
	if err != nil {
		return fmt.Errorf("selector of %s %s/%s: %w", s.key.Kind, s.key.Namespace, s.key.Name, err)
	}
	owners := map[types.UID]bool{s.object.GetUID(): true}
	if s.key.Kind == "Deployment" {
		if err := r.replicaSets(ctx, s, selector, owners); err != nil {
			return err
		}
	}
	next := ""
	for {
		var list corev1.PodList
		err := r.Live.List(ctx, &list, client.InNamespace(s.key.Namespace), client.MatchingLabelsSelector{Selector: selector},
			client.Limit(pageSize), client.Continue(next))
		if err != nil {
			return fmt.Errorf("listing the pods of %s %s/%s: %w", s.key.Kind, s.key.Namespace, s.key.Name, err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if of := metav1.GetControllerOfNoCopy(pod); of != nil && owners[of.UID] && !shared.Gone(pod) {
				s.pods = append(s.pods, *pod)
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// replicaSets adds those of a Deployment to the owners of its pods.
func (r *Reconciler) replicaSets(ctx context.Context, s *scene, selector labels.Selector, owners map[types.UID]bool) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSetList"))
	err := r.Live.List(ctx, list, client.InNamespace(s.key.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return fmt.Errorf("listing the ReplicaSets of Deployment %s/%s: %w", s.key.Namespace, s.key.Name, err)
	}
	for i := range list.Items {
		if of := metav1.GetControllerOfNoCopy(&list.Items[i]); of != nil && of.UID == s.object.GetUID() {
			owners[list.Items[i].UID] = true
		}
	}
	return nil
}

// readBudgets says what the disruption budgets of the target's pods allow.
func (r *Reconciler) readBudgets(ctx context.Context, s *scene) error {
	if len(s.pods) == 0 {
		return nil
	}
	var list policyv1.PodDisruptionBudgetList
	if err := r.Live.List(ctx, &list, client.InNamespace(s.key.Namespace)); err != nil {
		return fmt.Errorf("listing the disruption budgets of %s: %w", s.key.Namespace, err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !slices.ContainsFunc(s.pods, func(p corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) }) {
			continue
		}
		if allowed := int(b.Status.DisruptionsAllowed); s.disruptions < 0 || allowed < s.disruptions {
			s.disruptions = allowed
		}
		s.least = max(s.least, b.Status.DesiredHealthy)
	}
	return nil
}

// autoscaled says which autoscaler has a say in what a Recommendation is about; empty for none. A request on whose use one
// acts must not move alone, nor replicas that one sets.
func (r *Reconciler) autoscaled(ctx context.Context, s *scene, kind analysisv1alpha1.AnalysisType) (string, error) {
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := r.Live.List(ctx, &list, client.InNamespace(s.key.Namespace)); err != nil {
		return "", fmt.Errorf("listing the autoscalers of %s: %w", s.key.Namespace, err)
	}
	for i := range list.Items {
		h := &list.Items[i]
		ref := h.Spec.ScaleTargetRef
		if ref.Kind != s.key.Kind || ref.Name != s.key.Name || targets.GroupOf(ref.APIVersion) != s.key.Group {
			continue
		}
		if kind == analysisv1alpha1.AnalysisTypeReplicas {
			return h.Name, nil
		}
		for _, m := range h.Spec.Metrics {
			relative := func(t autoscalingv2.MetricTarget) bool { return t.Type == autoscalingv2.UtilizationMetricType }
			if m.Resource != nil && relative(m.Resource.Target) || m.ContainerResource != nil && relative(m.ContainerResource.Target) {
				return h.Name, nil
			}
		}
	}
	return "", nil
}

// owner is the field manager that has last said what the containers of the target ask for; empty where none is known.
func owner(o client.Object) string {
	var last *metav1.ManagedFieldsEntry
	fields := o.GetManagedFields()
	for i := range fields {
		f := &fields[i]
		if f.Subresource != "" || f.Manager == managerOf(analysisv1alpha1.AnalysisTypeResource) || f.FieldsV1 == nil || !mentionsResources(f.FieldsV1.GetRawBytes()) {
			continue
		}
		if last == nil || f.Time != nil && last.Time != nil && last.Time.Before(f.Time) {
			last = f
		}
	}
	if last == nil {
		return ""
	}
	return last.Manager
}

// killedAt is the last recorded kill of the target's containers.
func (r *Reconciler) killedAt(ctx context.Context, key targets.Key) (time.Time, error) {
	var last time.Time
	if r.Kills == nil {
		return last, nil
	}
	kills, err := r.Kills.Kills(ctx)
	if err != nil {
		return last, fmt.Errorf("reading the OOM kills: %w", err)
	}
	for _, k := range kills {
		if k.Namespace != key.Namespace {
			continue
		}
		for _, o := range k.Owners() {
			if o.Kind == key.Kind && o.Name == key.Name && targets.GroupOf(o.APIVersion) == key.Group && k.At.After(last) {
				last = k.At
			}
		}
	}
	return last, nil
}

// template is what the target asks for today of what is adopted or wanted.
func (s *scene) template(of ...adoption.Size) adoption.Size {
	all := adoption.Size{}
	for _, size := range of {
		if size.Replicas != nil {
			n := int32(1)
			if s.replicas != nil {
				n = *s.replicas
			}
			return adoption.Size{Replicas: &n}
		}
		if all.Containers == nil {
			all = size.Clone()
			continue
		}
		maps.Copy(all.Containers, size.Clone().Containers)
	}
	if s.spec == nil {
		return adoption.Size{}
	}
	return shared.TemplateSize(s.spec, all)
}
