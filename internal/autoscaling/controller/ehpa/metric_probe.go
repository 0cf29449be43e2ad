// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// MetricAvailability reports whether the cluster serves crane_autoscaling_prediction.
//
// An HPA with a failing metric never scales down. So an HPA gets a forecast only while the metric is served, and loses it after the
// metric was missing for a grace period. In between, for instance while the adapter restarts, the HPA holds its replicas.
type MetricAvailability struct {
	// Served is true while the metric is served.
	Served bool
	// Expired is true when the metric has been missing for longer than the grace period.
	Expired bool
}

// MetricProbe polls which external metrics are served: one request for all autoscalers.
type MetricProbe struct {
	// ListMetrics returns the resources of external.metrics.k8s.io/v1beta1.
	ListMetrics func() (*metav1.APIResourceList, error)
	// Interval is the time between two requests, GracePeriod the time for which the metric may be missing.
	Interval, GracePeriod time.Duration
	Clock                 clock.WithTicker
	// Changed receives an event when the availability changed.
	Changed chan<- event.TypedGenericEvent[client.Object]

	mu           sync.Mutex
	current      MetricAvailability
	missingSince time.Time // zero while the metric is served
}

// Availability returns the latest result, the zero value before the first.
func (p *MetricProbe) Availability() MetricAvailability {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.current
}

// Start polls until ctx ends.
func (p *MetricProbe) Start(ctx context.Context) error {
	pollAndNotify(ctx, p.Clock, p.Interval, p.Changed, func(context.Context) bool { return p.refresh() })
	return nil
}

// pollAndNotify calls poll at once and at each tick until ctx ends, and sends an event for all autoscalers when poll reports a change.
func pollAndNotify(
	ctx context.Context, clk clock.WithTicker, interval time.Duration, changed chan<- event.TypedGenericEvent[client.Object], poll func(context.Context) bool,
) {
	tick := clk.NewTicker(interval)
	defer tick.Stop()

	for {
		if poll(ctx) {
			select {
			case changed <- event.TypedGenericEvent[client.Object]{Object: &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}}:
			case <-ctx.Done():
				return
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

// refresh sends one request and reports whether the availability changed. A missing API group and an unreachable adapter mean that the
// metric is not served; any other error leaves the availability unknown and unchanged.
func (p *MetricProbe) refresh() bool {
	list, err := p.ListMetrics()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) {
		return false
	}

	served := err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == autoscalingv1alpha1.MetricPrediction
	})
	now := p.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	before := p.current
	switch {
	case served:
		p.missingSince = time.Time{}
		p.current = MetricAvailability{Served: true}
	case p.missingSince.IsZero():
		p.missingSince = now
		p.current = MetricAvailability{}
	default:
		p.current = MetricAvailability{Expired: now.Sub(p.missingSince) >= p.GracePeriod}
	}

	return p.current != before
}
