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

// Looker reads what a decision needs.
type Looker struct {
	// Live reads from the API server.
	Live client.Reader
	// Kills are the recorded OOM kills; nil for none.
	Kills Ledger
	// Throttling may be nil: then it is not known.
	Throttling Throttling
}

// Ledger holds the recorded OOM kills.
type Ledger interface {
	Kills(ctx context.Context) ([]oom.Kill, error)
}

// Throttling tells how much containers are throttled.
type Throttling interface {
	// Throttled is the worst share of throttled CFS periods among the containers of pods, of the last minutes; nil where it is
	// not known.
	Throttled(ctx context.Context, pods []corev1.Pod) *series.Ratio
}

// Question is what is to be decided about a scene.
type Question struct {
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

// Bar says why nothing may be begun; the zero value where something may.
type Bar struct{ Reason, Message string }

// Input gathers what the decision needs; the budgets of the cluster and the windows are the caller's to add.
func (l Looker) Input(ctx context.Context, s *Scene, q Question) (adoption.Input, Bar, error) {
	in := adoption.Input{
		Now: q.Now, Policy: q.Policy, State: q.State,
		OptedOut: s.optedOut, Ending: s.ending, Rolling: s.rolling, Owner: owner(s.Object),
		ChangeTemplate: s.Object.GetAnnotations()[analysisv1alpha1.AnnotationAdoptTemplate] == "true",
	}
	if s.ending || s.optedOut {
		return in, Bar{}, nil // Nothing more is looked at.
	}
	bar, err := l.want(ctx, s, q, &in)
	if err != nil {
		return in, bar, err
	}
	in.Barred = bar.Message
	in.Template = s.template(q.State.Earlier, in.Wanted)
	if err := l.readPods(ctx, s); err != nil {
		return in, bar, err
	}
	for i := range s.Pods {
		in.Pods = append(in.Pods, Pod(&s.Pods[i]))
	}
	if err := l.readBudgets(ctx, s); err != nil {
		return in, bar, err
	}
	in.Disruptions, in.LeastReplicas, in.Desired = s.disruptions, s.least, s.desired
	if in.Signals.KilledAt, err = l.killedAt(ctx, s); err != nil {
		return in, bar, err
	}
	if l.Throttling != nil && !in.Wanted.Empty() {
		// What cannot be read is not known, which is neither good nor bad.
		in.Signals.Throttled = l.Throttling.Throttled(ctx, s.Pods)
	}
	return in, bar, nil
}

// want takes from the Recommendation what is wanted, and says what bars it.
func (l Looker) want(ctx context.Context, s *Scene, q Question, in *adoption.Input) (Bar, error) {
	if err := l.readScaler(ctx, s, q.Type); err != nil {
		return Bar{}, err
	}
	in.Targets = s.scaler.targets
	rec := q.Recommendation
	if rec == nil {
		return Bar{}, nil
	}
	in.By = rec.Namespace + "/" + rec.Name
	in.Reach, in.MinReplicas = reach(rec)
	wanted, err := Wanted(rec)
	if err != nil { // Nobody knows what is wanted: what there is stays, and is watched.
		in.Wanted = q.State.Current.Clone()
		return Bar{analysisv1alpha1.ReasonFailedUpdateRecommendationValue, err.Error()}, nil //nolint:nilerr // The bar tells it.
	}
	in.Wanted = wanted
	if meta.IsStatusConditionTrue(rec.Status.Conditions, analysisv1alpha1.ConditionFailed) {
		in.Stale = "the last evaluation of the recommendation failed"
	}
	if bar := s.scaler.bar(q.Type, rec); bar != (Bar{}) {
		return bar, nil
	}
	if c := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionApplicable); c != nil && c.Status == metav1.ConditionFalse {
		return Bar{ReasonNotApplicable, "the recommendation is a proposal alone: " + c.Message}, nil
	}
	return Bar{}, nil
}

// reach is how the value of a Recommendation reaches pods.
func reach(rec *analysisv1alpha1.Recommendation) (of adoption.Reach, minReplicas int32) {
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

// owner is the field manager that has last said what the containers of the target ask for; empty where none is known.
func owner(o client.Object) string {
	var last *metav1.ManagedFieldsEntry
	fields := o.GetManagedFields()
	for i := range fields {
		f := &fields[i]
		if f.Subresource != "" || f.Manager == ManagerOf(analysisv1alpha1.AnalysisTypeResource) || f.FieldsV1 == nil || !mentionsResources(f.FieldsV1.GetRawBytes()) {
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
func (l Looker) killedAt(ctx context.Context, s *Scene) (time.Time, error) {
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
			if s.named(o.APIVersion, o.Kind, o.Name) && k.At.After(last) {
				last = k.At
			}
		}
	}
	return last, nil
}

// named tells whether a reference within the target's namespace, of any version, is to the target.
func (s *Scene) named(apiVersion, kind, name string) bool {
	return name == s.Object.GetName() && schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind() == s.Kind.GVK.GroupKind()
}
