// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/oom"
	"crane.io/crane/pkg/units"
)

// SnapshotReader reads what decisions need.
type SnapshotReader struct {
	// Live reads from the API server.
	Live client.Reader
	// Kills reads the recorded OOM kills; nil for none.
	Kills KillReader
	// Throttling reads CPU throttling; nil if it is unknown.
	Throttling ThrottlingReader
	// Limits reads LimitRanges and ResourceQuotas; nil to read them from Live.
	Limits client.Reader
	// VPAs finds VerticalPodAutoscalers that act; nil if there are none.
	VPAs VPAFinder
	// Pods tries the creation of pods; nil without the right to do so.
	Pods PodChecker
}

// VPAFinder finds the VerticalPodAutoscalers of the Kubernetes project.
type VPAFinder interface {
	// Find returns the names of those that act in a namespace, by target.
	Find(ctx context.Context, namespace string, now time.Time) (map[targetindex.Key]string, error)
}

// KillReader reads the recorded OOM kills.
type KillReader interface {
	Kills(ctx context.Context) ([]oom.Kill, error)
}

// ThrottlingReader reads how much containers are throttled.
type ThrottlingReader interface {
	// Throttled returns the largest share of throttled CFS periods, 0 to 1, among the containers of the pods in the last minutes;
	// nil if it is unknown.
	Throttled(ctx context.Context, pods []corev1.Pod) *units.Ratio
}

// DecisionRequest selects what is decided about a target.
type DecisionRequest struct {
	// Type is the type that is adopted: Resource or Replicas.
	Type analysisv1alpha1.AnalysisType
	// Recommendation is nil when adoption was switched off.
	Recommendation *analysisv1alpha1.Recommendation
	// State is the stored state.
	State  adoption.State
	Policy adoption.Policy
	Now    time.Time
}

// Reasons that prevent new changes.
const (
	ReasonAutoscaled    = "AutoscalerPresent"
	ReasonVPAPresent    = "VerticalPodAutoscalerPresent"
	ReasonNotApplicable = "NotApplicable"
	ReasonNotSupported  = "KindNotSupported"
)

// BlockReason is the reason why no new change may start; the zero value allows it.
type BlockReason struct{ Reason, Message string }

// DecisionInput returns the input of a decision, without the limits of budgets and maintenance windows, which the caller adds.
func (r SnapshotReader) DecisionInput(ctx context.Context, s *TargetSnapshot, q DecisionRequest) (adoption.Input, BlockReason, error) {
	in := adoption.Input{
		Now:               q.Now,
		Policy:            q.Policy,
		State:             q.State,
		OptedOut:          s.optedOut,
		Terminating:       s.terminating,
		RolloutInProgress: s.rolloutInProgress,
		Owner:             resourceOwner(s.Object),
		UpdateTemplate:    s.Object.GetAnnotations()[analysisv1alpha1.AnnotationAdoptTemplate] == "true",
	}

	if s.terminating || s.optedOut {
		return in, BlockReason{}, nil // Nothing else matters.
	}

	if err := r.readPods(ctx, s); err != nil {
		return in, BlockReason{}, err
	}

	if q.Type == analysisv1alpha1.AnalysisTypeResource {
		if err := r.readLimits(ctx, s, &in); err != nil {
			return in, BlockReason{}, err
		}
	}

	s.readPodTemplate(q.State)
	s.setNewPodSpec(q.State.Phase != adoption.Untouched)
	block, err := r.addDesiredSize(ctx, s, q, &in)
	if err != nil {
		return in, block, err
	}

	if !s.Watched() {
		if q.Recommendation != nil {
			block = cmp.Or(otherKindBlockReason(s, &in), block)
		}

		limitToInPlace(s, &in)
	}

	in.Blocked = block.Message
	in.Template, in.Effective = s.template(q.State.Original, in.DesiredSize)
	for i := range s.Pods {
		in.Pods = append(in.Pods, ConvertPod(&s.Pods[i]))
	}

	if err := r.readBudgets(ctx, s); err != nil {
		return in, block, err
	}

	in.DisruptionsAllowed = s.disruptionsAllowed
	in.MinHealthy = s.minHealthy
	in.DesiredReplicas = s.desiredReplicas
	if q.Type == analysisv1alpha1.AnalysisTypeResource {
		s.boundDesiredSize(&in)
		if err := r.readCreation(ctx, s, &in); err != nil {
			return in, block, err
		}
	}

	if in.Signals.KilledAt, err = r.killedAt(ctx, s); err != nil {
		return in, block, err
	}

	if r.Throttling != nil && !in.DesiredSize.Empty() {
		// Unknown throttling counts neither for nor against a step.
		in.Signals.Throttled = r.Throttling.Throttled(ctx, s.Pods)
	}

	return in, block, nil
}

// addDesiredSize sets the desired size in the input, and what comes with it from the Recommendation and the autoscaler. It returns the
// reason why no change to that size may start.
func (r SnapshotReader) addDesiredSize(ctx context.Context, s *TargetSnapshot, q DecisionRequest, in *adoption.Input) (BlockReason, error) {
	if err := r.readAutoscaler(ctx, s, q.Type); err != nil {
		return BlockReason{}, err
	}

	in.Targets = s.autoscaler.targets
	rec := q.Recommendation
	if rec == nil {
		return BlockReason{}, nil
	}

	in.Recommendation = rec.Namespace + "/" + rec.Name
	in.Reach, in.MinReplicas = reachOf(rec)

	desired, err := DesiredSize(rec)
	if err != nil { // Without a desired size, the current size stays and is still observed.
		in.DesiredSize = q.State.Current.Clone()
		return BlockReason{analysisv1alpha1.ReasonFailedUpdateRecommendationValue, err.Error()}, nil //nolint:nilerr // The reason contains it.
	}

	in.DesiredSize = desired
	if meta.IsStatusConditionTrue(rec.Status.Conditions, analysisv1alpha1.ConditionFailed) {
		in.Stale = "the last evaluation of the recommendation failed"
	}

	if q.Type == analysisv1alpha1.AnalysisTypeResource && hasPodLevelResources(s.podSpec) {
		return BlockReason{ReasonNotApplicable, "pods have resources of their own (spec.resources), which stand for those of their containers; Crane changes neither"}, nil
	}

	if block, err := r.vpaBlockReason(ctx, s, q); err != nil || block != (BlockReason{}) {
		return block, err
	}

	_, effective := s.template(desired)
	if block := s.autoscaler.blockReason(q.Type, rec, effective, desired); block != (BlockReason{}) {
		return block, nil
	}

	if c := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionApplicable); c != nil && c.Status == metav1.ConditionFalse {
		return BlockReason{ReasonNotApplicable, "the recommendation is a proposal alone: " + c.Message}, nil
	}

	return BlockReason{}, nil
}

// vpaBlockReason returns why nothing is changed beside a VerticalPodAutoscaler: both would undo the changes of the other.
func (r SnapshotReader) vpaBlockReason(ctx context.Context, s *TargetSnapshot, q DecisionRequest) (BlockReason, error) {
	if r.VPAs == nil || q.Type != analysisv1alpha1.AnalysisTypeResource {
		return BlockReason{}, nil
	}

	all, err := r.VPAs.Find(ctx, s.Object.GetNamespace(), q.Now)
	if err != nil {
		return BlockReason{}, err
	}

	key := targetindex.Key{Group: s.Kind.GVK.Group, Kind: s.Kind.GVK.Kind, Namespace: s.Object.GetNamespace(), Name: s.Object.GetName()}
	if name, ok := all[key]; ok {
		return BlockReason{ReasonVPAPresent, fmt.Sprintf("VerticalPodAutoscaler %s sizes the same pods; Crane changes nothing until it is deleted or its update mode is Off", name)}, nil
	}

	return BlockReason{}, nil
}

// reachOf returns how a Recommendation reaches pods.
func reachOf(rec *analysisv1alpha1.Recommendation) (reach adoption.Reach, minReplicas int32) {
	if rec.Spec.Adoption == nil {
		return adoption.InPlace, 0
	}

	if n := rec.Spec.Adoption.MinReplicas; n != nil {
		minReplicas = *n
	}
	if r := rec.Spec.Adoption.Reach; r != analysisv1alpha1.AdoptionReachInPlace {
		reach = adoption.Reach(r)
	}

	return reach, minReplicas
}

// resourceOwner returns the field manager that last set the resources of the target's containers; empty if unknown.
func resourceOwner(o client.Object) string {
	var last *metav1.ManagedFieldsEntry
	fields := o.GetManagedFields()
	for i := range fields {
		f := &fields[i]
		if f.Subresource != "" || f.Manager == FieldManager(analysisv1alpha1.AnalysisTypeResource) || f.FieldsV1 == nil || !mentionsResources(f.FieldsV1.GetRawBytes()) {
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

func mentionsResources(fields []byte) bool { return bytes.Contains(fields, []byte(`"f:resources"`)) }

// killedAt returns the time of the last recorded OOM kill in the target's containers.
func (r SnapshotReader) killedAt(ctx context.Context, s *TargetSnapshot) (time.Time, error) {
	var last time.Time
	if r.Kills == nil {
		return last, nil
	}

	kills, err := r.Kills.Kills(ctx)
	if err != nil {
		return last, fmt.Errorf("reading the OOM kills: %w", err)
	}

	for _, k := range kills {
		if k.Namespace != s.Object.GetNamespace() {
			continue
		}

		for _, o := range k.Owners() {
			if s.isReferredToBy(o.APIVersion, o.Kind, o.Name) && k.At.After(last) {
				last = k.At
			}
		}
	}

	return last, nil
}

// isReferredToBy reports whether a reference in the target's namespace, with any API version, means the target.
func (s *TargetSnapshot) isReferredToBy(apiVersion, kind, name string) bool {
	return name == s.Object.GetName() && kind == s.Kind.GVK.Kind && workload.GroupOf(apiVersion, kind) == s.Kind.GVK.Group
}
