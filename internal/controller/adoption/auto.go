// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	shared "crane.io/crane/internal/adoption"
	"crane.io/crane/internal/controller/targets"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/scaling"
)

// stateKeys are the annotations that hold the state of adoption, by what is adopted.
func stateKeys() map[analysisv1alpha1.AnalysisType]string {
	return map[analysisv1alpha1.AnalysisType]string{
		analysisv1alpha1.AnalysisTypeResource: analysisv1alpha1.AnnotationAdoption,
		analysisv1alpha1.AnalysisTypeReplicas: analysisv1alpha1.AnnotationReplicasAdoption,
	}
}

// auto goes on with what Auto asks for of one target and type; rec is nil where nothing asks for it any more.
func (r *Reconciler) auto(
	ctx context.Context, key targets.Key, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation,
) (verdict, error) {
	scene, err := r.observe(ctx, key)
	switch {
	case apierrors.IsNotFound(err) || err != nil && meta.IsNoMatchError(err):
		r.forget(key, kind)
		return verdict{}, nil // annotate has said so.
	case err != nil:
		return verdict{}, err
	case scene == nil:
		return verdict{reason: reasonNotSupported, message: fmt.Sprintf("Pods of a %s are not adopted; the value is in the annotation.", key.Kind)}, nil
	}
	text := scene.object.GetAnnotations()[stateKeys()[kind]]
	state, err := adoption.ParseState(text)
	if err != nil {
		return verdict{reason: reasonUnreadableState, message: fmt.Sprintf("annotation %s of the target: %v; nothing is done until it is deleted or mended", stateKeys()[kind], err)}, nil
	}
	if rec == nil && state.Phase == adoption.Untouched {
		r.forget(key, kind)
		return verdict{}, nil
	}
	in, v, err := r.input(ctx, scene, kind, rec, state)
	if err != nil || v.reason != "" {
		return v, err
	}
	if err := r.load(ctx); err != nil {
		return verdict{}, err
	}
	plan := r.decide(key, kind, in)
	if r.Settings.DryRun {
		return r.preview(ctx, scene, kind, rec, plan)
	}
	return r.act(ctx, scene, kind, rec, state, plan)
}

// input gathers what the decision needs. The verdict says what speaks against deciding at all.
func (r *Reconciler) input(
	ctx context.Context, s *scene, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation, state adoption.State,
) (adoption.Input, verdict, error) {
	in := adoption.Input{
		Now: r.Clock.Now(), Policy: r.Settings.Policy, State: state,
		OptedOut: s.optedOut, Ending: s.ending, Rolling: s.rolling, Owner: owner(s.object),
		ChangeTemplate: s.object.GetAnnotations()[analysisv1alpha1.AnnotationAdoptTemplate] == "true",
	}
	if rec != nil {
		wanted, err := shared.Wanted(rec)
		if err != nil {
			return in, verdict{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error()}, nil //nolint:nilerr // The verdict tells it.
		}
		in.Wanted, in.By = wanted, rec.Namespace+"/"+rec.Name
		if meta.IsStatusConditionTrue(rec.Status.Conditions, analysisv1alpha1.ConditionFailed) {
			in.Stale = "the last evaluation of the recommendation failed"
		}
		name, err := r.autoscaled(ctx, s, kind)
		if err != nil {
			return in, verdict{}, err
		}
		if name != "" {
			return in, verdict{reason: reasonAutoscaled, message: fmt.Sprintf("HorizontalPodAutoscaler %s acts on the same workload; what it sees would change with the value, so neither is applied.", name)}, nil
		}
	}
	if s.ending || s.optedOut {
		return in, verdict{}, nil // Nothing more is looked at.
	}
	in.Template = s.template(state.Earlier, in.Wanted)
	if err := r.readPods(ctx, s); err != nil {
		return in, verdict{}, err
	}
	for i := range s.pods {
		in.Pods = append(in.Pods, shared.Pod(&s.pods[i]))
	}
	if err := r.readBudgets(ctx, s); err != nil {
		return in, verdict{}, err
	}
	in.Disruptions, in.LeastReplicas = s.disruptions, s.least
	var err error
	if in.Signals.KilledAt, err = r.killedAt(ctx, s.key); err != nil {
		return in, verdict{}, err
	}
	if r.Throttling != nil && !in.Wanted.Empty() {
		// What cannot be read is not known, which is neither good nor bad.
		in.Signals.Throttled = r.Throttling.Throttled(ctx, s.pods)
	}
	return in, verdict{}, nil
}

// decide asks what to do, with the book of the cluster in hand, and enters the answer.
func (r *Reconciler) decide(key targets.Key, kind analysisv1alpha1.AnalysisType, in adoption.Input) adoption.Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := bookKey(key, kind)
	in.Room = r.book.Room(entry, in.Policy, in.Now)
	in.Room.Closed = closed(r.Settings.Windows, in.Now)
	plan := adoption.Decide(in)
	if !r.Settings.DryRun {
		r.book.Set(entry, plan.State)
	}
	return plan
}

func bookKey(key targets.Key, kind analysisv1alpha1.AnalysisType) adoption.Key {
	return adoption.Key{Namespace: key.Namespace, Kind: key.Kind, Name: key.Name, What: string(kind)}
}

// forget drops a target that is gone, or of which nothing is adopted, from the book.
func (r *Reconciler) forget(key targets.Key, kind analysisv1alpha1.AnalysisType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Remove(bookKey(key, kind))
}

// closed says that no maintenance window is open; without any, it always is.
func closed(windows []scaling.CronWindow, now time.Time) string {
	if len(windows) == 0 {
		return ""
	}
	var next time.Time
	for _, w := range windows {
		if w.Open(now) {
			return ""
		}
		if opens, _ := w.Next(now); !opens.IsZero() && (next.IsZero() || opens.Before(next)) {
			next = opens
		}
	}
	return "no maintenance window is open; the next opens at " + next.UTC().Format(time.RFC3339)
}
