// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	shared "crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
)

// Reconciler looks after one target and what is recommended for it.
type Reconciler struct {
	// Client reads Recommendations and watched kinds from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Settings say how Auto is carried out.
	Settings shared.Settings
	// Kills are the recorded OOM kills; nil for none.
	Kills shared.KillReader
	// Throttling may be nil: then it is not known.
	Throttling shared.ThrottlingReader
	Metrics    *Metrics

	recentWrites recentWrites
	refusals     refusals

	mu            sync.Mutex // guards what follows; held while it is decided
	budgets       *adoption.BudgetTracker
	budgetsLoaded bool
}

// NewReconciler makes one whose book is still empty.
func NewReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, clk clock.PassiveClock, settings shared.Settings) *Reconciler {
	r := &Reconciler{Client: c, Live: live, Events: recorder, Clock: clk, Settings: settings, budgets: adoption.NewBudgetTracker()}
	r.Metrics = newMetrics(r.workloadsUnderWay, r.breakerOpen)
	return r
}

// Reconcile implements reconcile.TypedReconciler.
func (r *Reconciler) Reconcile(ctx context.Context, key targetindex.Key) (ctrl.Result, error) {
	all, err := targetindex.ListRecommendations(ctx, r.Client, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	var again time.Duration
	var errs []error
	autos := map[analysisv1alpha1.AnalysisType]*analysisv1alpha1.Recommendation{}
	verdicts := map[string]outcome{}
	for _, kind := range typesOf(all) {
		first := shared.ActiveRecommendation(all, kind)
		for i := range all {
			rec := &all[i]
			if rec.Spec.Type != kind || rec.DeletionTimestamp != nil {
				continue
			}
			v, err := r.annotateTarget(ctx, rec, first)
			errs = append(errs, err)
			// A value that cannot be written or read is no reason to give back what was adopted; a target that is gone needs nothing.
			if v.reason != reasonTargetGone && rec == first && rec.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeAuto {
				autos[kind] = rec
			}
			verdicts[rec.Namespace+"/"+rec.Name] = v
		}
	}
	begun := r.typesWithState(ctx, key)
	for kind := range shared.StateAnnotations() {
		rec := autos[kind]
		if rec == nil && !begun[kind] {
			r.forgetBudget(key, kind)
			continue // Most targets: nothing is asked of the API server for them.
		}
		v, err := r.adoptTarget(ctx, key, kind, rec)
		errs = append(errs, err)
		if rec != nil {
			name := rec.Namespace + "/" + rec.Name
			v.requeueAfter = earliest(v.requeueAfter, verdicts[name].requeueAfter)
			if told := verdicts[name]; told.reason != "" {
				v.reason, v.message = told.reason, told.message
			}
			verdicts[name] = v
		}
		again = earliest(again, v.requeueAfter)
	}
	for i := range all {
		v, looked := verdicts[all[i].Namespace+"/"+all[i].Name]
		if looked {
			v.adopted = autos[all[i].Spec.Type] == &all[i]
			errs = append(errs, r.reportStatus(ctx, &all[i], v))
			again = earliest(again, v.requeueAfter)
		}
	}
	return ctrl.Result{RequeueAfter: again}, errors.Join(errs...)
}

// earliest of two waits, of which 0 is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// annotateTarget brings one Recommendation to its target; first is the one of its type that speaks for the target.
func (r *Reconciler) annotateTarget(ctx context.Context, rec, first *analysisv1alpha1.Recommendation) (outcome, error) {
	if _, known := annotationOf(rec.Spec.Type); !known {
		return outcome{}, nil // Nothing of it goes to a target.
	}
	target, err := targetindex.Find(ctx, r.Client, r.Live, rec.Spec.TargetRef)
	switch {
	case apierrors.IsNotFound(err) && rec.Labels[analysisv1alpha1.LabelRuleUID] != "":
		return outcome{}, nil // A rule's goes with its target.
	case apierrors.IsNotFound(err): // Most kinds are not watched: nobody tells when one comes back.
		return outcome{reason: reasonTargetGone, message: "The target does not exist.", requeueAfter: retryRefused}, nil
	case err != nil && meta.IsNoMatchError(err):
		// The kind is gone, for example its CRD. It may come back; the rule's next round says what it is.
		return outcome{reason: reasonTargetGone, message: err.Error(), requeueAfter: retryRefused}, nil
	case err != nil:
		return outcome{}, err
	}
	if err := validateValue(rec); err != nil {
		return outcome{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error()}, nil //nolint:nilerr // The verdict tells it.
	}
	switch {
	case !shared.Applicable(rec):
		return outcome{}, nil
	case first != nil && (first.Name != rec.Name || first.Namespace != rec.Namespace):
		return outcome{
			reason:  reasonOtherRecommendation,
			message: fmt.Sprintf("Recommendation %s, which is older, is the one that is written on the target.", first.Name),
		}, nil
	}
	return r.annotate(ctx, rec, target)
}

// validateValue refuses a value that is no YAML document of its type.
func validateValue(rec *analysisv1alpha1.Recommendation) error {
	var value analysisv1alpha1.ProposedRecommendation
	if err := yaml.Unmarshal([]byte(rec.Status.RecommendedValue), &value); err != nil {
		return fmt.Errorf("recommendedValue: %w", err)
	}
	if value.ResourceRequest == nil {
		return nil
	}
	for _, c := range value.ResourceRequest.Containers {
		for name, text := range c.Target {
			if _, err := apiresource.ParseQuantity(text); err != nil {
				return fmt.Errorf("recommendedValue: container %s: %s %q: %w", c.ContainerName, name, text, err)
			}
		}
	}
	return nil
}
