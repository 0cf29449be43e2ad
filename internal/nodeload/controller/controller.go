// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"crane.io/crane/pkg/units"
)

const (
	// hotInterval is the interval between updates of hot values; a node gets at most one patch for them in each.
	hotInterval = 30 * time.Second
	// maxStartDelay bounds the delay of the first round, which spreads the queries of several clusters to one
	// Prometheus.
	maxStartDelay = 5 * time.Second
	// roundTimeout bounds the reads of one round.
	roundTimeout = 2 * time.Minute
)

// Config configures a Controller.
type Config struct {
	Policy  *policyfile.File
	Sources Sources
	// Nodes lists nodes from a cache, once per round.
	Nodes client.Reader
	// Patches writes annotations.
	Patches Patcher
	// Binds counts placements; nil for no hot values.
	Binds BindCounter
	// Format is the time format of annotations.
	Format nodeload.Format
	// Labels are the labels of series that name a node, in order of preference.
	Labels []string
	// Material is the change of a value that is written before the old value expires.
	Material units.Ratio
	// Workers is the number of concurrent patches.
	Workers int
	// Namespace is Crane's own, with the ConfigMap of the policy.
	Namespace string
	// TaintAbove is the share of the mark schedule above which nodes are tainted; 0 for never.
	TaintAbove units.Ratio
	// DryRun decides and reports, and writes nothing.
	DryRun bool

	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.WithTicker
}

// BindCounter counts the placements on nodes in the ranges of a policy.
type BindCounter interface {
	// Ranges sets the ranges to count.
	Ranges([]nodeload.HotRange)
	// Count returns the placements on a node in each of the ranges; false before counting has started.
	Count(node string, now time.Time) ([]int64, bool)
}

// Controller writes loads. It is a manager.Runnable that only the leader runs; its methods except Wake are not safe
// for concurrent use.
type Controller struct {
	cfg      Config
	schedule *schedule
	hotNext  time.Time
	policy   *nodeload.Policy
	// reportedProblems holds the last reported problem of each node and metric, so that only changes are reported.
	reportedProblems map[problemKey]problem
	// reportedUndated holds the metrics whose unknown sample times were reported.
	reportedUndated map[string]bool
	// writeFails is true after a failed patch: only the first failure in a row is logged.
	writeFails bool

	wake chan struct{}
}

// New returns a controller. It returns an error if the configuration is incomplete.
func New(cfg Config) (*Controller, error) {
	switch {
	case cfg.Policy == nil || cfg.Nodes == nil || cfg.Patches == nil || cfg.Clock == nil || cfg.Events == nil || cfg.Metrics == nil:
		return nil, errors.New("a node-load controller needs a policy, nodes, a writer, events, metrics and a clock")
	case cfg.Workers < 1:
		return nil, fmt.Errorf("checking the configuration: %d workers, want 1 or more", cfg.Workers)
	case !(cfg.Material >= 0 && cfg.Material <= 1):
		return nil, fmt.Errorf("checking the configuration: a material change of %v, want 0 to 1", cfg.Material)
	case len(cfg.Labels) == 0:
		return nil, errors.New("no label of series that names a node")
	}

	return &Controller{
		cfg:              cfg,
		reportedProblems: map[problemKey]problem{},
		reportedUndated:  map[string]bool{},
		wake:             make(chan struct{}, 1),
	}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: it runs rounds until ctx ends.
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

// Wake starts a round at once, for a new policy.
func (c *Controller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default: // a round is due already
	}
}

// Round reads due metrics, writes changed values, and returns the time of the next round.
func (c *Controller) Round(ctx context.Context) time.Time {
	now := c.cfg.Clock.Now()
	if c.schedule == nil {
		c.schedule = newSchedule(now)
	}

	c.applyPolicy(ctx, now)
	var list corev1.NodeList
	if err := c.cfg.Nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		if ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).WithName("nodeload").Error(err, "listing nodes")
		}

		return now.Add(firstRetry)
	}

	nodes := toNodes(list.Items)
	due := c.schedule.due(c.policy.Metrics, now, missingOnNewNodes(list.Items, now))

	readCtx, cancel := context.WithTimeout(ctx, roundTimeout)
	r := &reader{
		sources: c.cfg.Sources,
		nodes:   nodes,
		match:   newMatcher(list.Items, c.cfg.Labels),
		now:     now,
	}

	c.requestForecasts(nodes)
	readings := r.read(readCtx, c.policy.Metrics, due)
	cancel()

	if ctx.Err() != nil {
		return now
	}

	c.record(ctx, nodes, readings, now)

	p := planner{
		policy:   c.policy,
		format:   c.cfg.Format,
		material: c.cfg.Material,
		now:      now,
		interval: hotInterval,
	}

	patches := p.plan(nodes, readings, c.hot(now))
	c.updateTaints(ctx, list.Items, now) // before the writes, which change resource versions
	c.write(ctx, nodes, patches)
	c.cfg.Metrics.round(c.cfg.Clock.Since(now))

	return c.next(now)
}

// applyPolicy takes a changed policy into use.
func (c *Controller) applyPolicy(ctx context.Context, now time.Time) {
	policy := c.cfg.Policy.Policy()
	if policy == c.policy {
		return
	}

	c.policy = policy
	c.schedule.retain(policy.Metrics)
	c.cfg.Metrics.retain(policy.Metrics)

	for reported := range c.reportedProblems {
		if !named(policy.Metrics, reported.metric) {
			delete(c.reportedProblems, reported)
		}
	}

	maps.DeleteFunc(c.reportedUndated, func(metric string, _ bool) bool { return !named(policy.Metrics, metric) })
	c.hotNext = now
	if c.cfg.Binds != nil {
		c.cfg.Binds.Ranges(policy.Hot)
	}

	for _, w := range policy.Warnings {
		ctrl.LoggerFrom(ctx).WithName("nodeload").Info("policy has a warning", "warning", w)
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

// newNodeAge is the age up to which a node is new: an older node that lacks a metric does not report it.
const newNodeAge = 15 * time.Minute

// missingOnNewNodes reports whether a new node has no value of a metric.
func missingOnNewNodes(list []corev1.Node, now time.Time) func(metric string) bool {
	var young []*corev1.Node
	for i := range list {
		if now.Sub(list[i].CreationTimestamp.Time) < newNodeAge {
			young = append(young, &list[i])
		}
	}

	return func(metric string) bool {
		return slices.ContainsFunc(young, func(n *corev1.Node) bool { return n.Annotations[metric] == "" })
	}
}

// hot returns the hot value of a node; nil if none are written.
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

// requestForecasts registers the forecasts that the policy uses.
func (c *Controller) requestForecasts(nodes []node) {
	if c.cfg.Sources.Forecast == nil {
		return
	}

	var resources []units.Resource
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

	c.cfg.Sources.Forecast.Request(names, resources)
}
