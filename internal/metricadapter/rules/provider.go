// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/metricadapter/refreshloop"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

const (
	// maxValues bounds the values of one response. An HPA adds them up; a rule can aggregate more.
	maxValues = 1000
)

// Config is the configuration of a Provider.
type Config struct {
	// Rules returns the rules in force.
	Rules func() *promadapter.Rules
	// Query evaluates PromQL. NaN is a valid value.
	Query func(ctx context.Context, expr string, at time.Time) ([]metrics.Sample, error)
	// Resources lists the resources of the cluster, Objects their objects.
	Resources *Resources
	Objects   *Objects
	// ListInterval is the time between two listings of the series.
	ListInterval time.Duration
	// MaxAge is the maximum age of the newest sample of a series that is listed; 0 for those with a value now.
	MaxAge time.Duration
	Clock  clock.WithTicker
}

// Provider serves the metrics that rules define.
type Provider struct {
	Config

	found atomic.Pointer[ruleListing]
	wake  chan struct{}

	mu        sync.Mutex
	lastError error // of the last request to the server; errNotQueried at first
}

// ruleListing are rules with the series that they find.
type ruleListing struct {
	rules  *promadapter.Rules
	series *promadapter.Listing
}

var errNotQueried = errors.New("the server has not been queried yet")

// New returns a Provider. Run keeps its listing up to date.
func New(c Config) *Provider {
	return &Provider{Config: c, wake: make(chan struct{}, 1), lastError: errNotQueried}
}

// IneffectiveRules returns the rules that define no metric, as of the last listing.
func (p *Provider) IneffectiveRules() []promadapter.IneffectiveRule {
	rules, series := p.current()
	return rules.Ineffective(series)
}

// NotifyChanged makes Run list the series of changed rules at once.
func (p *Provider) NotifyChanged() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Ready returns the error of the last request to the server, nil after a success.
func (p *Provider) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.lastError
}

// Run lists the series of the rules until ctx ends.
func (p *Provider) Run(ctx context.Context) error {
	return refreshloop.Run(ctx, "rules", p.Clock, p.ListInterval, p.wake, p.refresh)
}

// refresh lists the series of all rules. Its error covers the rules whose series could not be listed.
func (p *Provider) refresh(ctx context.Context) error {
	rules := p.Rules()
	var before *promadapter.Listing
	if previous := p.found.Load(); previous != nil && previous.rules == rules {
		before = previous.series
	}

	answered := false
	queried := false
	var unreachable error // After it no further query is sent, because each would wait for a timeout.

	series, err := rules.ListSince(ctx, p.MaxAge, before, func(ctx context.Context, expr string) ([]string, error) {
		if unreachable != nil {
			return nil, unreachable
		}

		samples, err := p.Query(ctx, expr, p.Clock.Now())
		queried = true
		answered = answered || err == nil

		if failure := new(prometheus.Error); errors.As(err, &failure) && failure.Kind == prometheus.Unreachable {
			unreachable = err
		}

		names := make([]string, 0, len(samples))
		for _, s := range samples {
			names = append(names, s.Labels["__name__"])
		}

		return names, err
	})

	serverErr := err
	if !queried {
		_, serverErr = p.Query(ctx, "vector(1)", p.Clock.Now())
	} else if answered && unreachable == nil {
		serverErr = nil // The server answered; only some rule failed.
	}

	p.mu.Lock()
	p.lastError = serverErr
	p.mu.Unlock()
	p.found.Store(&ruleListing{rules: rules, series: series})

	return errors.Join(err, serverErr)
}

// current returns the rules in force and their listing, nil before it was made.
func (p *Provider) current() (*promadapter.Rules, *promadapter.Listing) {
	rules := p.Rules()
	if k := p.found.Load(); k != nil && k.rules == rules {
		return rules, k.series
	}

	return rules, nil
}
