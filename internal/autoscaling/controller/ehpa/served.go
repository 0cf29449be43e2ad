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

// Served tells whether the cluster serves crane_autoscaling_prediction.
//
// An HPA with a metric that fails never scales down. So a forecast is given to an HPA only while somebody serves it, and
// taken away when nobody has for a while; in between, as while the adapter restarts, the HPA holds its replicas.
type Served struct {
	// Now is true while it is served.
	Now bool
	// Gone is true when it has not been served for longer than an adapter takes to come back.
	Gone bool
}

// Probe asks now and then which external metrics are served. It is one request for all autoscalers.
type Probe struct {
	// List returns the resources of external.metrics.k8s.io/v1beta1.
	List func() (*metav1.APIResourceList, error)
	// Every is the time between two requests, Grace how long the metric may be away.
	Every, Grace time.Duration
	Clock        clock.WithTicker
	// Changed is told when the answer has changed.
	Changed chan<- event.TypedGenericEvent[client.Object]

	mu      sync.Mutex
	current Served
	missing time.Time // since when; zero while it is served
}

// Served returns the latest answer; before the first one, that nothing is served and nothing gone.
func (p *Probe) Served() Served {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Start asks until ctx ends.
func (p *Probe) Start(ctx context.Context) error {
	tellEvery(ctx, p.Clock, p.Every, p.Changed, func(context.Context) bool { return p.ask() })
	return nil
}

// tellEvery looks at once and then at each tick, until ctx ends, and tells whoever listens that all autoscalers should be looked at where
// something has changed.
func tellEvery(
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

// ask asks once and tells whether the answer has changed. An API server that does not answer says nothing of the metric; that nobody
// serves it is an answer, and so is that its adapter cannot be reached.
func (p *Probe) ask() bool {
	list, err := p.List()
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
		p.missing, p.current = time.Time{}, Served{Now: true}
	case p.missing.IsZero():
		p.missing, p.current = now, Served{}
	default:
		p.current = Served{Gone: now.Sub(p.missing) >= p.Grace}
	}
	return p.current != before
}
