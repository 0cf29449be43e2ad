// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/notification"
	"crane.io/crane/internal/component/tracing"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
)

// Reconciler applies the Recommendations of one target.
type Reconciler struct {
	// Client reads Recommendations and watched kinds from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Settings of the adoption type Auto.
	Settings targetsnapshot.Settings
	// Kills reads the recorded OOM kills; nil for none.
	Kills targetsnapshot.KillReader
	// Throttling reads CPU throttling; nil if it is unknown.
	Throttling targetsnapshot.ThrottlingReader
	// VPAs finds VerticalPodAutoscalers that act; nil if there are none.
	VPAs targetsnapshot.VPAFinder
	// Pods tries the creation of pods; nil without the right to do so.
	Pods targetsnapshot.PodChecker
	// SystemNamespace is Crane's own namespace, whose Recommendations may have cluster-scoped targets.
	SystemNamespace string
	// Pause stops all changes of targets; nil for never.
	Pause   *pause.Switch
	Metrics *Metrics
	// Reactor finds usage above the request within the day; nil for no reaction.
	Reactor *Reactor
	// Notify receives rollbacks, stops and the opening of the circuit breaker; nil for none.
	Notify func(notification.Event)

	annotator annotator
	refusals  refusals

	mu            sync.Mutex // guards the fields below; held during a decision
	budgets       *adoption.BudgetTracker
	budgetsLoaded bool
	// breakersNotified are the namespaces whose circuit breaker is known to be open, "" for the cluster.
	breakersNotified map[string]bool
}

// NewReconciler returns a Reconciler whose budgets are not loaded yet.
func NewReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, clk clock.PassiveClock, settings targetsnapshot.Settings) *Reconciler {
	r := &Reconciler{
		Client:   c,
		Live:     live,
		Events:   recorder,
		Clock:    clk,
		Settings: settings,
		budgets:  adoption.NewBudgetTracker(),
	}

	r.annotator.client = c
	r.annotator.live = live
	r.annotator.clock = clk
	r.Metrics = newMetrics(r.workloadsUnderWay, r.breakerOpen)

	return r
}

// Reconcile implements reconcile.TypedReconciler.
func (r *Reconciler) Reconcile(ctx context.Context, key targetindex.Key) (ctrl.Result, error) {
	all, err := targetindex.ListRecommendations(ctx, r.Client, key)
	if err != nil {
		return ctrl.Result{}, err
	}

	all, refused := r.separateForeign(all)
	if r.Pause.Paused() {
		return ctrl.Result{RequeueAfter: pausePoll}, r.reportPause(ctx, all)
	}

	owned, err := targetsnapshot.AutoscalerOwned(ctx, r.Live, all)
	if err != nil {
		return ctrl.Result{}, err
	}

	outcomes, auto, annotateErr := r.annotateTargets(ctx, all, owned)
	adopted, adoptErr := r.adoptTypes(ctx, key, auto, all)

	errs := []error{annotateErr, adoptErr}
	for rec, reason := range refused {
		errs = append(errs, r.reportStatus(ctx, rec, outcome{reason: reasonForeignTarget, message: reason.Error()}))
	}

	// What is applied to pods is reported together with the annotation, in one write of the status.
	var requeueAfter time.Duration
	for kind, o := range adopted {
		requeueAfter = earliest(requeueAfter, o.requeueAfter)
		if rec := auto[kind]; rec != nil {
			outcomes[rec] = outcomes[rec].withAdoption(o)
		}
	}

	for i := range all {
		if o, ok := outcomes[&all[i]]; ok {
			errs = append(errs, r.reportStatus(ctx, &all[i], o))
			requeueAfter = earliest(requeueAfter, o.requeueAfter)
		}
	}

	return ctrl.Result{RequeueAfter: requeueAfter}, errors.Join(errs...)
}

type (
	outcomesByRecommendation map[*analysisv1alpha1.Recommendation]outcome
	recommendationsByType    map[analysisv1alpha1.AnalysisType]*analysisv1alpha1.Recommendation
)

// pausePoll is the wait before a target is decided about again while Crane is paused.
const pausePoll = 10 * time.Second

// reportPause sets the condition of the Recommendations that would change their target.
func (r *Reconciler) reportPause(ctx context.Context, all []analysisv1alpha1.Recommendation) error {
	var errs []error
	for i := range all {
		rec := &all[i]
		if _, supported := annotationOf(rec.Spec.Type); supported && targetsnapshot.Applicable(rec) {
			adopted := rec.Status.Adoption != nil
			errs = append(errs, r.reportStatus(ctx, rec, outcome{reason: reasonPaused, message: r.Pause.Message(), adopted: adopted}))
		}
	}

	return errors.Join(errs...)
}

// separateForeign returns the Recommendations that may change their target, and the others with their errors.
func (r *Reconciler) separateForeign(
	all []analysisv1alpha1.Recommendation,
) (permitted []analysisv1alpha1.Recommendation, refused map[*analysisv1alpha1.Recommendation]error) {
	refused = map[*analysisv1alpha1.Recommendation]error{}
	for i := range all {
		if err := targetindex.CheckNamespace(&all[i], r.SystemNamespace); err == nil {
			permitted = append(permitted, all[i])
		} else if all[i].DeletionTimestamp == nil {
			refused[&all[i]] = err
		}
	}

	return permitted, refused
}

// annotateTargets writes the annotations of all Recommendations. auto holds, by type, those that are also applied to pods.
func (r *Reconciler) annotateTargets(
	ctx context.Context, all []analysisv1alpha1.Recommendation, autoscalerOwned sets.Set[client.ObjectKey],
) (outcomesByRecommendation, recommendationsByType, error) {
	outcomes := outcomesByRecommendation{}
	auto := recommendationsByType{}
	var errs []error
	for _, kind := range typesOf(all) {
		active := targetsnapshot.ActiveRecommendation(all, kind, autoscalerOwned)
		for i := range all {
			rec := &all[i]
			if rec.Spec.Type != kind || rec.DeletionTimestamp != nil {
				continue
			}

			o, err := r.annotateTarget(ctx, rec, active)
			errs = append(errs, err)

			// An unreadable value does not undo an adoption; a missing target needs nothing.
			if o.reason != reasonTargetGone && rec == active && rec.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeAuto {
				auto[kind] = rec
			}

			outcomes[rec] = o
		}
	}

	return outcomes, auto, errors.Join(errs...)
}

// adoptTypes continues the adoption of each type that has a Recommendation or a stored state.
func (r *Reconciler) adoptTypes(
	ctx context.Context, key targetindex.Key, auto recommendationsByType, all []analysisv1alpha1.Recommendation,
) (map[analysisv1alpha1.AnalysisType]outcome, error) {
	// Without the states, it is unknown which budgets may be released.
	stored, err := r.typesWithState(ctx, key, all)
	if err != nil {
		return nil, err
	}

	outcomes := map[analysisv1alpha1.AnalysisType]outcome{}
	var errs []error
	for kind := range targetsnapshot.StateAnnotations() {
		rec := auto[kind]
		if rec == nil && !stored[kind] {
			r.forgetBudget(key, kind) // Most targets end here, without a request to the API server.
			continue
		}

		adopting, span := tracing.Start(ctx, "adoption.evaluate", "type", string(kind), "target", key.String())
		o, err := r.adoptTarget(adopting, key, kind, rec)
		tracing.End(span, err)
		errs = append(errs, err)
		outcomes[kind] = o
	}

	return outcomes, errors.Join(errs...)
}

// annotateTarget writes the annotation of one Recommendation; active is the one of its type that is applied.
func (r *Reconciler) annotateTarget(ctx context.Context, rec, active *analysisv1alpha1.Recommendation) (outcome, error) {
	if _, supported := annotationOf(rec.Spec.Type); !supported {
		return outcome{}, nil // Nothing of this type is written on a target.
	}

	ref := rec.Spec.TargetRef
	if workload.GroupOf(ref.APIVersion, ref.Kind) == "" && !slices.Contains([]string{"Pod", "ReplicationController", "Node"}, ref.Kind) {
		return outcome{reason: reasonNotSupported, message: fmt.Sprintf("Recommendations are not written on objects of kind %s. Correct spec.targetRef.", ref.Kind)}, nil
	}

	target, err := targetindex.Find(ctx, r.Client, r.Live, ref)
	if err != nil {
		return missingTarget(rec, err)
	}

	if rec.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeStatus && active == nil {
		o, err := r.annotator.remove(ctx, rec, target)
		if err != nil || o != (outcome{}) {
			return o, err
		}
	}

	value, invalid := annotationValue(rec)
	if invalid != nil {
		return outcome{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: invalid.Error()}, nil //nolint:nilerr // the error is reported in the returned value
	}

	switch {
	case !targetsnapshot.Applicable(rec), value == "":
		return outcome{}, nil
	case active != nil && (active.Name != rec.Name || active.Namespace != rec.Namespace):
		return outcome{
			reason:  reasonOtherRecommendation,
			message: fmt.Sprintf("Recommendation %s, which takes precedence, is written on the target.", active.Name),
		}, nil
	}

	return r.annotator.annotate(ctx, rec, target, value)
}

// missingTarget returns the outcome for a target that cannot be read; an error where a retry may help at once.
func missingTarget(rec *analysisv1alpha1.Recommendation, err error) (outcome, error) {
	switch {
	case errors.Is(err, targetindex.ErrOtherNamespace):
		return outcome{reason: reasonForeignTarget, message: err.Error(), requeueAfter: retryRefused}, nil
	case apierrors.IsNotFound(err) && rec.Labels[analysisv1alpha1.LabelRuleUID] != "":
		return outcome{}, nil // The rule deletes its Recommendation.
	case apierrors.IsNotFound(err): // Most kinds are not watched, so that no event reports the next object of this name.
		return outcome{reason: reasonTargetGone, message: "The target does not exist.", requeueAfter: retryRefused}, nil
	case meta.IsNoMatchError(err): // The kind may be installed again.
		return outcome{reason: reasonTargetGone, message: err.Error(), requeueAfter: retryRefused}, nil
	case apierrors.IsForbidden(err): // Only an administrator can change this.
		return outcome{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error(), requeueAfter: retryRefused}, nil
	}

	return outcome{}, err
}
