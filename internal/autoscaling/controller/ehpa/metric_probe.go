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

// MetricAvailability tells whether the cluster serves crane_autoscaling_prediction.
//
// An HPA with a metric that fails never scales down. So a forecast is given to an HPA only while somebody serves it, and
// taken away when nobody has for a while; in between, as while the adapter restarts, the HPA holds its replicas.
type MetricAvailability struct {
	// Served is true while it is served.
	Served bool
	// Expired is true when it has not been served for longer than an adapter takes to come back.
	Expired bool
}

// MetricProbe asks now and then which external metrics are served. It is one request for all autoscalers.
type MetricProbe struct {
	// ListMetrics returns the resources of external.metrics.k8s.io/v1beta1.
	ListMetrics func() (*metav1.APIResourceList, error)
	// Interval is the time between two requests, Grace how long the metric may be away.
	Interval, GracePeriod time.Duration
	Clock                 clock.WithTicker
	// Changed is told when the answer has changed.
	Changed chan<- event.TypedGenericEvent[client.Object]

	mu           sync.Mutex
	current      MetricAvailability
	missingSince time.Time // since when; zero while it is served
}

// Availability returns the latest answer; before the first one, that nothing is served and nothing gone.
func (p *MetricProbe) Availability() MetricAvailability {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Start asks until ctx ends.
func (p *MetricProbe) Start(ctx context.Context) error {
	pollAndNotify(ctx, p.Clock, p.Interval, p.Changed, func(context.Context) bool { return p.refresh() })
	return nil
}

// pollAndNotify looks at once and then at each tick, until ctx ends, and tells whoever listens that all autoscalers should be looked at where
// something has changed.
func pollAndNotify(
	ctx context.Context, clk clock.WithTicker, every time.Duration, changed chan<- event.TypedGenericEvent[client.Object], look func(context.Context) bool,
) {
	tick := clk.NewTicker(every)
	defer tick.Stop()
	for {
		if look(ctx) {
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

// refresh asks once and tells whether the answer has changed. An API server that does not answer says nothing of the metric; that nobody
// serves it is an answer, and so is that its adapter cannot be reached.
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
		p.missingSince, p.current = time.Time{}, MetricAvailability{Served: true}
	case p.missingSince.IsZero():
		p.missingSince, p.current = now, MetricAvailability{}
	default:
		p.current = MetricAvailability{Expired: now.Sub(p.missingSince) >= p.GracePeriod}
	}
	return p.current != before
}
