// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/oom"
	"crane.io/crane/pkg/series"
)

// SnapshotReader reads what a decision needs.
type SnapshotReader struct {
	// Live reads from the API server.
	Live client.Reader
	// Kills are the recorded OOM kills; nil for none.
	Kills KillReader
	// Throttling may be nil: then it is not known.
	Throttling ThrottlingReader
}

// KillReader holds the recorded OOM kills.
type KillReader interface {
	Kills(ctx context.Context) ([]oom.Kill, error)
}

// ThrottlingReader tells how much containers are throttled.
type ThrottlingReader interface {
	// Throttled is the worst share of throttled CFS periods among the containers of pods, of the last minutes; nil where it is
	// not known.
	Throttled(ctx context.Context, pods []corev1.Pod) *series.Ratio
}

// DecisionRequest is what is to be decided about a scene.
type DecisionRequest struct {
	// Type is what is adopted: Resource or Replicas.
	Type analysisv1alpha1.AnalysisType
	// Recommendation is nil where nothing asks for it any more.
	Recommendation *analysisv1alpha1.Recommendation
	// State is what is written down.
	State  adoption.State
	Policy adoption.Policy
	Now    time.Time
}

// Reasons for which nothing may be begun.
const (
	ReasonAutoscaled    = "AutoscalerPresent"
	ReasonNotApplicable = "NotApplicable"
)

// BlockReason says why nothing may be begun; the zero value where something may.
type BlockReason struct{ Reason, Message string }

// DecisionInput gathers what the decision needs; the budgets of the cluster and the windows are the caller's to add.
func (l SnapshotReader) DecisionInput(ctx context.Context, s *TargetSnapshot, q DecisionRequest) (adoption.Input, BlockReason, error) {
	in := adoption.Input{
		Now: q.Now, Policy: q.Policy, State: q.State,
		OptedOut: s.optedOut, Terminating: s.terminating, RolloutInProgress: s.rolloutInProgress, Owner: resourceOwner(s.Object),
		UpdateTemplate: s.Object.GetAnnotations()[analysisv1alpha1.AnnotationAdoptTemplate] == "true",
	}
	if s.terminating || s.optedOut {
		return in, BlockReason{}, nil // Nothing more is looked at.
	}
	bar, err := l.want(ctx, s, q, &in)
	if err != nil {
		return in, bar, err
	}
	in.Blocked = bar.Message
	in.Template = s.template(q.State.Original, in.DesiredSize)
	if err := l.readPods(ctx, s); err != nil {
		return in, bar, err
	}
	for i := range s.Pods {
		in.Pods = append(in.Pods, ConvertPod(&s.Pods[i]))
	}
	if err := l.readBudgets(ctx, s); err != nil {
		return in, bar, err
	}
	in.DisruptionsAllowed, in.MinHealthy, in.DesiredReplicas = s.disruptionsAllowed, s.minHealthy, s.desiredReplicas
	if in.Signals.KilledAt, err = l.killedAt(ctx, s); err != nil {
		return in, bar, err
	}
	if l.Throttling != nil && !in.DesiredSize.Empty() {
		// What cannot be read is not known, which is neither good nor bad.
		in.Signals.Throttled = l.Throttling.Throttled(ctx, s.Pods)
	}
	return in, bar, nil
}

// want takes from the Recommendation what is wanted, and says what bars it.
func (l SnapshotReader) want(ctx context.Context, s *TargetSnapshot, q DecisionRequest, in *adoption.Input) (BlockReason, error) {
	if err := l.readAutoscaler(ctx, s, q.Type); err != nil {
		return BlockReason{}, err
	}
	in.Targets = s.autoscaler.targets
	rec := q.Recommendation
	if rec == nil {
		return BlockReason{}, nil
	}
	in.Recommendation = rec.Namespace + "/" + rec.Name
	in.Reach, in.MinReplicas = reachOf(rec)
	wanted, err := DesiredSize(rec)
	if err != nil { // Nobody knows what is wanted: what there is stays, and is watched.
		in.DesiredSize = q.State.Current.Clone()
		return BlockReason{analysisv1alpha1.ReasonFailedUpdateRecommendationValue, err.Error()}, nil //nolint:nilerr // The bar tells it.
	}
	in.DesiredSize = wanted
	if meta.IsStatusConditionTrue(rec.Status.Conditions, analysisv1alpha1.ConditionFailed) {
		in.Stale = "the last evaluation of the recommendation failed"
	}
	if bar := s.autoscaler.blockReason(q.Type, rec); bar != (BlockReason{}) {
		return bar, nil
	}
	if c := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionApplicable); c != nil && c.Status == metav1.ConditionFalse {
		return BlockReason{ReasonNotApplicable, "the recommendation is a proposal alone: " + c.Message}, nil
	}
	return BlockReason{}, nil
}

// reachOf is how the value of a Recommendation reaches pods.
func reachOf(rec *analysisv1alpha1.Recommendation) (of adoption.Reach, minReplicas int32) {
	if rec.Spec.Adoption == nil {
		return adoption.InPlace, 0
	}
	if n := rec.Spec.Adoption.MinReplicas; n != nil {
		minReplicas = *n
	}
	if r := rec.Spec.Adoption.Reach; r != analysisv1alpha1.AdoptionReachInPlace {
		of = adoption.Reach(r)
	}
	return of, minReplicas
}

// resourceOwner is the field manager that has last said what the containers of the target ask for; empty where none is known.
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

// killedAt is the last recorded kill of the target's containers.
func (l SnapshotReader) killedAt(ctx context.Context, s *TargetSnapshot) (time.Time, error) {
	var last time.Time
	if l.Kills == nil {
		return last, nil
	}
	kills, err := l.Kills.Kills(ctx)
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

// isReferredToBy tells whether a reference within the target's namespace, of any version, is to the target.
func (s *TargetSnapshot) isReferredToBy(apiVersion, kind, name string) bool {
	return name == s.Object.GetName() && schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind() == s.Kind.GVK.GroupKind()
}
