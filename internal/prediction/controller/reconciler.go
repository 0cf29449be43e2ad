// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
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
	Set(caller string, requests []predictor.Request) []predictor.Ticket
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
	// Frequency is the time between two looks at an object.
	Frequency time.Duration
	Clock     clock.PassiveClock

	// waiting is since when objects wait for their history; each look doubles the time to the next.
	waiting firstseen.Tracker
}

// callerOf names an object to the predictor.
func callerOf(name types.NamespacedName) string { return "timeseriesprediction/" + name.String() }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	err := r.Client.Get(ctx, req.NamespacedName, tsp)
	if apierrors.IsNotFound(err) || err == nil && tsp.DeletionTimestamp != nil {
		r.Predictor.Forget(callerOf(req.NamespacedName))
		r.Metrics.forget(req.NamespacedName)
		r.waiting.Forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the prediction %s: %w", req, err)
	}
	seen := r.observe(tsp)
	status := r.decide(tsp, seen)
	if err := r.act(ctx, tsp, status); err != nil {
		return ctrl.Result{}, err
	}
	r.Metrics.observe(tsp, status, seen, r.Clock.Now())
	return ctrl.Result{RequeueAfter: r.again(req.NamespacedName, seen)}, nil
}

// observe tells the predictor what is wanted and asks how it stands.
func (r *Reconciler) observe(tsp *predictionv1alpha1.TimeSeriesPrediction) []observed {
	seen := make([]observed, len(tsp.Spec.PredictionMetrics))
	var requests []predictor.Request
	var at []int
	for i := range tsp.Spec.PredictionMetrics {
		m := &tsp.Spec.PredictionMetrics[i]
		seen[i].identifier = m.ResourceIdentifier
		request, err := requestOf(tsp, m, r.Selector)
		if err != nil {
			seen[i].refused = err
			continue
		}
		requests, at = append(requests, request), append(at, i)
	}
	for n, ticket := range r.Predictor.Set(callerOf(client.ObjectKeyFromObject(tsp)), requests) {
		o := &seen[at[n]]
		if o.key, o.refused = ticket.Key, ticket.Err; ticket.Err == nil {
			o.status = r.Predictor.Status(ticket.Key)
		}
	}
	return seen
}

// decide makes the status. Where one metric needs a new forecast all get one, so that they run out together and one write
// serves them all.
func (r *Reconciler) decide(tsp *predictionv1alpha1.TimeSeriesPrediction, seen []observed) predictionv1alpha1.TimeSeriesPredictionStatus {
	d := newDecision(tsp, r.Clock.Now())
	due := d.due(seen)
	var status predictionv1alpha1.TimeSeriesPredictionStatus
	for _, o := range seen {
		one := d.kept(o)
		if due && o.status.State == predictor.Ready {
			all, err := r.Predictor.Forecast(o.key, windowsAhead*d.window)
			switch {
			case err != nil:
				one.Reason = sentence(err.Error())
			case len(all) > 0:
				one = d.made(o, all, r.advise(tsp, o, all), maxSamples/len(seen))
			}
		}
		status.PredictionMetrics = append(status.PredictionMetrics, one)
	}
	status.Conditions = d.conditions(status.PredictionMetrics, seen, due)
	return status
}

// advise asks how much of a forecast is worth its replicas; nil where nobody wants to know, and where the metric is several series.
func (r *Reconciler) advise(tsp *predictionv1alpha1.TimeSeriesPrediction, o observed, all []predictor.SeriesForecast) *predictor.Advice {
	if len(all) != 1 {
		return nil
	}
	advice, ok := r.Predictor.Advise(o.key, callerOf(client.ObjectKeyFromObject(tsp)), o.identifier, all[0].Forecast)
	if !ok {
		return nil
	}
	return &advice
}

// act writes the status where it differs.
func (r *Reconciler) act(ctx context.Context, tsp *predictionv1alpha1.TimeSeriesPrediction, status predictionv1alpha1.TimeSeriesPredictionStatus) error {
	if equality.Semantic.DeepEqual(tsp.Status, status) {
		return nil
	}
	changed := tsp.DeepCopy()
	changed.Status = status
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(tsp, client.MergeFromWithOptimisticLock{}))); err != nil {
		return fmt.Errorf("writing the status of the prediction %s/%s: %w", tsp.Namespace, tsp.Name, err)
	}
	return nil
}

// again is when to look at an object the next time: at the usual frequency, and sooner while its history is being read.
func (r *Reconciler) again(name types.NamespacedName, seen []observed) time.Duration {
	pending := false
	for _, o := range seen {
		pending = pending || o.refused == nil && o.status.State == predictor.Pending
	}
	if !pending {
		r.waiting.Forget(name)
		return r.Frequency
	}
	return min(r.Frequency, max(time.Second, r.waiting.Since(name, r.Clock.Now())))
}
