// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/firstseen"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/forecast"
)

// Predictor is the part of predictor.Predictor that the controllers use.
type Predictor interface {
	Set(caller string, requests []predictor.Request) []predictor.RequestResult
	Forget(caller string)
	Status(key predictor.Key) predictor.Status
	Forecast(key predictor.Key, horizon time.Duration) ([]predictor.SeriesForecast, error)
	Accuracy(key predictor.Key) predictor.Accuracy
	Advise(key predictor.Key, caller, name string, published forecast.Forecast) (predictor.Advice, bool)
}

// Reconciler writes the forecasts of one TimeSeriesPrediction into its status.
type Reconciler struct {
	Client    client.Client
	Predictor Predictor
	Selector  Selector
	Metrics   *Metrics
	// Isolation restricts the queries. The objects of its system namespace have no budget of their own.
	Isolation Isolation
	// NodeTemplates checks the predictions of nodes; nil for no check.
	NodeTemplates *NodeTemplates
	// Frequency is the interval between reconciliations of an object.
	Frequency time.Duration
	Clock     clock.PassiveClock

	queries queryCache
	// waiting tracks since when objects wait for their history; the interval doubles with each reconciliation.
	waiting firstseen.Tracker
	writes  writePaces
}

// callerName returns the caller name of an object for the predictor.
func callerName(name types.NamespacedName) string { return "timeseriesprediction/" + name.String() }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	err := r.Client.Get(ctx, req.NamespacedName, tsp)
	if apierrors.IsNotFound(err) || err == nil && tsp.DeletionTimestamp != nil {
		r.Predictor.Forget(callerName(req.NamespacedName))
		r.Metrics.forget(req.NamespacedName)
		r.waiting.Forget(req.NamespacedName)
		r.queries.forget(req.NamespacedName)
		r.writes.forget(req.NamespacedName)

		return ctrl.Result{}, nil
	}

	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the prediction %s: %w", req, err)
	}

	refused := r.NodeTemplates.Check(ctx, tsp)
	if refused != nil && !isTemplateError(refused) {
		return ctrl.Result{}, fmt.Errorf("checking the prediction %s: %w", req, refused)
	}

	seen := r.observe(tsp, refused)
	after := r.requeueAfter(req.NamespacedName, seen)
	if r.mayBeReadySoon(tsp, seen) {
		return ctrl.Result{RequeueAfter: after}, nil
	}

	if wait := r.writes.wait(tsp, seen, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: max(after, wait)}, nil
	}

	status := r.decide(tsp, seen)
	if err := r.act(ctx, tsp, status); err != nil {
		return ctrl.Result{}, err
	}

	r.Metrics.observe(tsp, status, seen, r.Clock.Now())
	return ctrl.Result{RequeueAfter: after}, nil
}

// observe registers the requests with the predictor and returns their states. All of them are refused if an error is given.
func (r *Reconciler) observe(tsp *predictionv1alpha1.TimeSeriesPrediction, refused error) []metricState {
	seen := make([]metricState, len(tsp.Spec.PredictionMetrics))
	var requests []predictor.Request
	var positions []int

	queries := r.queries.get(tsp, func() []specQuery { return queriesOf(tsp, r.Selector, r.Isolation) })
	for i := range tsp.Spec.PredictionMetrics {
		m := &tsp.Spec.PredictionMetrics[i]
		seen[i].identifier = m.ResourceIdentifier

		request, err := requestOf(tsp, m, queries[i])
		err = cmp.Or(refused, err)
		if err != nil {
			seen[i].refused = err
			continue
		}

		seen[i].emptyReason = r.Isolation.emptyReason(tsp, request.Query)
		if tsp.Namespace != r.Isolation.SystemNamespace {
			request.Namespace = tsp.Namespace
		}

		requests = append(requests, request)
		positions = append(positions, i)
	}

	// Refused metrics have no request, so that results have other positions than metrics.
	for n, ticket := range r.Predictor.Set(callerName(client.ObjectKeyFromObject(tsp)), requests) {
		o := &seen[positions[n]]
		o.key, o.refused = ticket.Key, ticket.Err

		if ticket.Err == nil {
			o.status = r.Predictor.Status(ticket.Key)
		}
	}

	return seen
}

// decide returns the new status. If one metric needs a new forecast, all get one, so that they end together and need
// one write.
func (r *Reconciler) decide(tsp *predictionv1alpha1.TimeSeriesPrediction, seen []metricState) predictionv1alpha1.TimeSeriesPredictionStatus {
	d := newDecision(tsp, r.Clock.Now())
	due := d.needsForecast(seen)
	var status predictionv1alpha1.TimeSeriesPredictionStatus
	for _, o := range seen {
		metric := d.withoutNewForecast(o)
		if due && o.status.State == predictor.Ready {
			// One step more than is published, see samplesOf.
			all, err := r.Predictor.Forecast(o.key, windowsAhead*d.window+o.status.Step)
			switch {
			case err != nil:
				metric.Reason = sentence(errorText(err))
			case len(all) > 0:
				metric = d.withNewForecast(o, all, r.advise(tsp, o, all), maxSamples/len(seen))
			}
		}

		status.PredictionMetrics = append(status.PredictionMetrics, metric)
	}

	status.Conditions = d.conditions(status.PredictionMetrics, seen, due)
	return status
}

// advise returns how much of a forecast is worth its replicas; nil if the spec does not request it or the metric has
// several series.
func (r *Reconciler) advise(tsp *predictionv1alpha1.TimeSeriesPrediction, o metricState, all []predictor.SeriesForecast) *predictor.Advice {
	if len(all) != 1 {
		return nil
	}

	advice, ok := r.Predictor.Advise(o.key, callerName(client.ObjectKeyFromObject(tsp)), o.identifier, all[0].Forecast)
	if !ok {
		return nil
	}

	return &advice
}

// act writes the status if it has changed.
func (r *Reconciler) act(ctx context.Context, tsp *predictionv1alpha1.TimeSeriesPrediction, status predictionv1alpha1.TimeSeriesPredictionStatus) error {
	if equality.Semantic.DeepEqual(tsp.Status, status) {
		return nil
	}

	changed := tsp.DeepCopy()
	changed.Status = status
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(tsp, client.MergeFromWithOptimisticLock{}))); err != nil {
		return fmt.Errorf("writing the status of the prediction %s/%s: %w", tsp.Namespace, tsp.Name, err)
	}

	r.writes.record(tsp, r.Clock.Now())
	return nil
}

// requeueAfter returns the delay to the next reconciliation: Frequency, or less while the history is being read.
func (r *Reconciler) requeueAfter(name types.NamespacedName, seen []metricState) time.Duration {
	if countPending(seen) == 0 {
		r.waiting.Forget(name)
		return r.Frequency
	}

	return min(r.Frequency, max(time.Second, r.waiting.Since(name, r.Clock.Now())))
}

// firstWriteAfter is how long a new object has no status while its history is read. Most histories are known by then, so that one write suffices.
// A second one soon after the first is a conflict if the cache does not have the first yet, which on a busy API server takes up to a minute.
const firstWriteAfter = 2 * time.Second

// mayBeReadySoon reports whether an object without a status waits for its history, and not for long.
func (r *Reconciler) mayBeReadySoon(tsp *predictionv1alpha1.TimeSeriesPrediction, seen []metricState) bool {
	return len(tsp.Status.Conditions) == 0 && countPending(seen) > 0 &&
		r.waiting.Since(client.ObjectKeyFromObject(tsp), r.Clock.Now()) < firstWriteAfter
}
