// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

const (
	// retryInterval is the time between two questions to a server that did not answer.
	retryInterval = 10 * time.Second
	// maxValues bounds the values of one answer. An HPA adds them up; whoever wants more lets the rule add them up.
	maxValues = 1000
)

// Config is what a Provider needs.
type Config struct {
	// Rules returns the rules in force.
	Rules func() *promadapter.Rules
	// Query evaluates PromQL. NaN is a value.
	Query func(ctx context.Context, expr string, at time.Time) ([]metrics.Sample, error)
	// Resources says which resources there are, Objects which objects.
	Resources *Resources
	Objects   *Objects
	// ListInterval is the time between two looks at which series there are.
	ListInterval time.Duration
	Clock        clock.WithTicker
}

// Provider serves what rules define.
type Provider struct {
	Config

	found atomic.Pointer[ruleListing]
	wake  chan struct{}

	mu        sync.Mutex
	lastError error // why the server did not answer last; errNotQueried at first
}

// ruleListing is what was found by some rules.
type ruleListing struct {
	rules   *promadapter.Rules
	listing *promadapter.Listing
}

var errNotQueried = errors.New("the server has not answered yet")

// New returns a Provider; Run keeps it up to date.
func New(c Config) *Provider {
	return &Provider{Config: c, wake: make(chan struct{}, 1), lastError: errNotQueried}
}

// NotifyChanged tells Run that other rules are in force.
func (p *Provider) NotifyChanged() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Ready tells why the server did not answer when it was asked last; nil if it did.
func (p *Provider) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastError
}

// Run looks at which series there are until ctx ends.
func (p *Provider) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("rules")
	told := ""
	for {
		err := p.refresh(ctx)
		wait, text := p.ListInterval, ""
		if err != nil {
			wait, text = min(retryInterval, p.ListInterval), err.Error()
		}
		if text != told && ctx.Err() == nil {
			told = text
			if err != nil {
				log.Info("Looking for the series of rules failed; trying again", "reason", text)
			} else {
				log.Info("Series of rules are found again")
			}
		}
		timer := p.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-p.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// refresh asks for the series of all rules. It returns why a rule could not be asked about.
func (p *Provider) refresh(ctx context.Context) error {
	rules := p.Rules()
	var before *promadapter.Listing
	if had := p.found.Load(); had != nil && had.rules == rules {
		before = had.listing
	}
	answered, asked := false, false
	var gone error // One question that nobody answers is enough: each takes its time.
	listing, err := rules.List(ctx, before, func(ctx context.Context, expr string) ([]string, error) {
		if gone != nil {
			return nil, gone
		}
		samples, err := p.Query(ctx, expr, p.Clock.Now())
		asked, answered = true, answered || err == nil
		if failure := new(prometheus.Error); errors.As(err, &failure) && failure.Kind == prometheus.Unreachable {
			gone = err
		}
		names := make([]string, 0, len(samples))
		for _, s := range samples {
			names = append(names, s.Labels["__name__"])
		}
		return names, err
	})
	up := err
	if !asked {
		_, up = p.Query(ctx, "vector(1)", p.Clock.Now())
	} else if answered && gone == nil {
		up = nil // One bad rule is not the server's fault.
	}
	p.mu.Lock()
	p.lastError = up
	p.mu.Unlock()
	p.found.Store(&ruleListing{rules: rules, listing: listing})
	return errors.Join(err, up)
}

// current returns the rules in force and what is known by them.
func (p *Provider) current() (*promadapter.Rules, *promadapter.Listing) {
	rules := p.Rules()
	if k := p.found.Load(); k != nil && k.rules == rules {
		return rules, k.listing
	}
	return rules, nil
}
