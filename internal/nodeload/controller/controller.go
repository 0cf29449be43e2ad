// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/series"
)

const (
	// hotInterval is the time between two looks at hot values; a node gets at most one patch for them in each.
	hotInterval = 30 * time.Second
	// maxStartDelay bounds the delay of the first round, which keeps several clusters from asking one Prometheus at the
	// same moments.
	maxStartDelay = 5 * time.Second
	// roundTimeout bounds the reading of one round.
	roundTimeout = 2 * time.Minute
)

// Config is what a Controller needs from outside.
type Config struct {
	Policy  *policyfile.File
	Sources Sources
	// Nodes lists nodes; a cache, since it is asked for each round.
	Nodes client.Reader
	// Patches writes annotations.
	Patches Patcher
	// Binds counts placements; nil for no hot values.
	Binds BindCounter
	// Format is how times are written and read.
	Format nodeload.Format
	// Labels are the labels of series that name a node, in the order in which they are looked at.
	Labels []string
	// Material is the difference from which on a value is written before it expires.
	Material series.Ratio
	// Workers is how many nodes are written to at once.
	Workers int
	// Namespace is Crane's own, where the ConfigMap of the policy lies.
	Namespace string
	// DryRun decides and tells, and writes nothing.
	DryRun bool

	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.WithTicker
}

// BindCounter counts the placements on nodes in the ranges of a policy.
type BindCounter interface {
	// Ranges sets what is counted from now on.
	Ranges([]nodeload.HotRange)
	// Count returns the placements on a node in each of the ranges; false where counting has not begun.
	Count(node string, now time.Time) ([]int64, bool)
}

// Controller writes loads. It is a manager.Runnable that only the leader runs; its methods are not safe for concurrent
// use, but for Wake.
type Controller struct {
	cfg      Config
	schedule *schedule
	hotNext  time.Time
	policy   *nodeload.Policy
	// told is what nodes were last said to lack, so that only a change is told.
	told map[complaint]problem
	// patches that failed, for the log: only the first in a row is told.
	writeFails bool

	wake chan struct{}
}

// New returns a controller that has done nothing. It fails where something is missing.
func New(cfg Config) (*Controller, error) {
	switch {
	case cfg.Policy == nil || cfg.Nodes == nil || cfg.Patches == nil || cfg.Clock == nil || cfg.Events == nil || cfg.Metrics == nil:
		return nil, errors.New("a node-load controller needs a policy, nodes, a writer, events, metrics and a clock")
	case cfg.Workers < 1:
		return nil, fmt.Errorf("%d workers: want 1 or more", cfg.Workers)
	case !(cfg.Material >= 0 && cfg.Material <= 1):
		return nil, fmt.Errorf("a material change of %v: want 0 to 1", cfg.Material)
	case len(cfg.Labels) == 0:
		return nil, errors.New("no label of series that names a node")
	}
	return &Controller{cfg: cfg, told: map[complaint]problem{}, wake: make(chan struct{}, 1)}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: rounds until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	delay := rand.N(maxStartDelay)
	for {
		timer := c.cfg.Clock.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		case <-c.wake:
			timer.Stop()
		}
		next := c.Round(ctx)
		delay = max(next.Sub(c.cfg.Clock.Now()), 0)
	}
}

// Wake asks for a round at once, for a policy that is new.
func (c *Controller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default: // A round is due anyway.
	}
}

// Round reads what is due and writes what has changed, and returns when there is something to do again.
func (c *Controller) Round(ctx context.Context) time.Time {
	now := c.cfg.Clock.Now()
	if c.schedule == nil {
		c.schedule = newSchedule(now)
	}
	c.adopt(ctx, now)
	var list corev1.NodeList
	if err := c.cfg.Nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		if ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).WithName("nodeload").Error(err, "Listing nodes")
		}
		return now.Add(firstRetry)
	}
	nodes := toNodes(list.Items)
	due := c.schedule.due(c.policy.Metrics, now, lackedByYoung(list.Items, now))

	reading, cancel := context.WithTimeout(ctx, roundTimeout)
	r := reader{sources: c.cfg.Sources, nodes: nodes, match: newMatcher(list.Items, c.cfg.Labels), now: now}
	c.wantForecasts(nodes)
	readings := r.read(reading, c.policy.Metrics, due)
	cancel()
	if ctx.Err() != nil {
		return now
	}
	c.note(ctx, nodes, readings, now)

	p := planner{policy: c.policy, format: c.cfg.Format, material: c.cfg.Material, now: now, interval: hotInterval}
	patches := p.plan(nodes, readings, c.hot(now))
	c.write(ctx, nodes, patches)
	c.cfg.Metrics.round(c.cfg.Clock.Since(now))
	return c.next(now)
}

// adopt takes over a policy that is new.
func (c *Controller) adopt(ctx context.Context, now time.Time) {
	policy := c.cfg.Policy.Policy()
	if policy == c.policy {
		return
	}
	c.policy = policy
	c.schedule.keep(policy.Metrics)
	c.cfg.Metrics.keep(policy.Metrics)
	for told := range c.told {
		if !named(policy.Metrics, told.metric) {
			delete(c.told, told)
		}
	}
	c.hotNext = now
	if c.cfg.Binds != nil {
		c.cfg.Binds.Ranges(policy.Hot)
	}
	for _, w := range policy.Warnings {
		ctrl.LoggerFrom(ctx).WithName("nodeload").Info("Policy: " + w)
	}
}

func named(list []nodeload.Metric, name string) bool {
	for _, m := range list {
		if m.Name == name {
			return true
		}
	}
	return false
}

// youth is how long a node counts as young: after it, a metric that it lacks is one that it does not have.
const youth = 15 * time.Minute

// lackedByYoung tells whether a node that is young carries no value of a metric.
func lackedByYoung(list []corev1.Node, now time.Time) func(metric string) bool {
	var young []*corev1.Node
	for i := range list {
		if now.Sub(list[i].CreationTimestamp.Time) < youth {
			young = append(young, &list[i])
		}
	}
	return func(metric string) bool {
		return slices.ContainsFunc(young, func(n *corev1.Node) bool { return n.Annotations[metric] == "" })
	}
}

// hot returns the hot value of a node; nil where there is none to be told.
func (c *Controller) hot(now time.Time) func(node string) int64 {
	if c.cfg.Binds == nil || len(c.policy.Hot) == 0 {
		return nil
	}
	if _, ok := c.cfg.Binds.Count("", now); !ok {
		return nil
	}
	c.hotNext = now.Add(hotInterval)
	return func(node string) int64 {
		counts, ok := c.cfg.Binds.Count(node, now)
		if !ok || len(counts) != len(c.policy.Hot) {
			return 0
		}
		return nodeload.HotValue(c.policy.Hot, counts)
	}
}

func (c *Controller) next(now time.Time) time.Time {
	next := c.schedule.earliest(c.policy.Metrics, now)
	if c.cfg.Binds != nil && len(c.policy.Hot) > 0 {
		if !c.hotNext.After(now) {
			c.hotNext = now.Add(hotInterval)
		}
		if c.hotNext.Before(next) {
			next = c.hotNext
		}
	}
	return next
}

// wantForecasts tells the forecaster whose forecasts the policy uses.
func (c *Controller) wantForecasts(nodes []node) {
	if c.cfg.Sources.Forecast == nil {
		return
	}
	var resources []nodeload.Resource
	for _, m := range c.policy.Metrics {
		if m.From == nodeload.FromForecast {
			resources = append(resources, m.Resource)
		}
	}
	var names []string
	if len(resources) > 0 {
		for _, n := range nodes {
			names = append(names, n.name)
		}
	}
	c.cfg.Sources.Forecast.Want(names, resources)
}
