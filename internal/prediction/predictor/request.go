// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/internal/component/tracing"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Query is the usage of a workload or node (Target and Resource), or an expression of the source.
type Query struct {
	// Target is a workload, or a node if its Kind is Node. APIVersion is ignored, because sources do not have it.
	Target   workload.Ref      `json:"target,omitzero"`
	Resource metrics.UsageKind `json:"resource,omitempty"`
	// Expression is in the query language of the source; it is used if Resource is empty.
	Expression string `json:"expression,omitempty"`
}

// kindNode is the kind of a target that is a node.
const kindNode = "Node"

func (q Query) String() string {
	if q.Resource != "" {
		return string(q.Resource) + " of " + q.Target.String()
	}

	return q.Expression
}

// Request identifies one series, or the series of an expression, and the forecast settings.
type Request struct {
	Query Query
	// Algorithm is a name of package registry; empty means auto. Options are its settings.
	Algorithm string
	Options   registry.Options
	// Aggregated pools all series of the query into one distribution; for percentile only.
	Aggregated bool
	// Namespace is that of the object that requests the forecast. Its budget is charged; empty for no budget. It is not part of the key.
	Namespace string
	// Scaling requests an evaluation of scaling by the forecast for this caller; nil for none.
	Scaling *Scaling
}

// Key identifies a Request; equal requests have equal keys.
type Key [sha256.Size]byte

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Limits of requests.
const (
	// defaultStep is the sample interval if none is set.
	defaultStep = time.Minute
	// minStep and maxStep bound the sample interval; gocrane's maximum is an hour, too.
	minStep = 15 * time.Second
	maxStep = time.Hour
	// autoHistory is the length of history that the auto model holds.
	autoHistory = 14 * day
	// dspHistory and percentileHistory are the defaults of these algorithms.
	dspHistory        = 15 * day
	percentileHistory = 7 * day
	// maxRing is the maximum number of stored samples per series.
	maxRing = 25_000

	day = 24 * time.Hour
)

// plan is a validated request.
type plan struct {
	key           Key
	query         Query
	expression    expressionKey
	name          string
	algorithm     forecast.Algorithm
	step, history time.Duration
	aggregated    bool
	// calendar is that of auto.
	calendar auto.Calendar
	// level is the quantile to publish; percentile publishes its own estimate.
	level float64
}

// newPlan validates a request; days of auto begin at midnight in the zone, nil for UTC. Errors are written for users.
func newPlan(r Request, zone *time.Location) (plan, error) {
	if r.Query.Resource != "" {
		r.Query.Expression, r.Query.Target.APIVersion = "", ""
		if r.Query.Target.Kind == "" || r.Query.Target.Name == "" {
			return plan{}, errors.New("the target needs a kind and a name")
		}

		if r.Query.Resource != metrics.CPU && r.Query.Resource != metrics.Memory {
			return plan{}, fmt.Errorf("resource %q: want %s or %s", r.Query.Resource, metrics.CPU, metrics.Memory)
		}
	} else if r.Query.Expression == "" {
		return plan{}, errors.New("the query has neither a resource nor an expression")
	}

	algorithm, err := registry.New(r.Algorithm, r.Options)
	if err != nil {
		return plan{}, fmt.Errorf("algorithm: %w", err)
	}

	p := plan{
		query:     r.Query,
		name:      algorithm.Name(),
		algorithm: algorithm,
		step:      defaultStep,
		history:   autoHistory,
		level:     0.95,
	}

	if p.calendar, err = auto.NewCalendar(nil, zone); err != nil {
		return plan{}, fmt.Errorf("calendar: %w", err)
	}

	var settings any
	switch p.name {
	case registry.DSP:
		settings = r.Options.DSP
		p.step, p.history = durations(r.Options.DSP.SampleInterval, r.Options.DSP.HistoryLength, dspHistory)
		p.level = 0.5
	case registry.Percentile:
		settings = r.Options.Percentile
		p.step, p.history = durations(r.Options.Percentile.SampleInterval, r.Options.Percentile.HistoryLength, percentileHistory)
		p.aggregated = r.Aggregated
	}

	if p.aggregated {
		// Samples of different series are not averaged: the algorithm receives each one.
		o := r.Options
		o.Percentile.SampleInterval = forecast.MinStep.String()
		if p.algorithm, err = registry.New(p.name, o); err != nil {
			return plan{}, fmt.Errorf("algorithm: %w", err)
		}
	}

	text, err := json.Marshal([]any{p.query, p.name, settings, p.aggregated})
	if err != nil {
		return plan{}, fmt.Errorf("the key of %s: %w", p.query, err)
	}

	p.key = sha256.Sum256(text)
	if p.query.Resource == "" {
		digest := sha256.Sum256([]byte(p.query.Expression))
		p.expression = expressionKey(digest[:])
	}

	return p, nil
}

// durations returns the sample interval and history length of validated settings, bounded: the step is a whole number
// of seconds that divides a day, and the history has at most maxRing steps.
func durations(interval, length string, fallback time.Duration) (step, history time.Duration) {
	step = defaultStep
	history = fallback

	if d, err := units.ParseDuration(interval); err == nil && interval != "" {
		step = min(max(d, minStep), maxStep)
	}
	if d, err := units.ParseDuration(length); err == nil && length != "" {
		history = d
	}

	history = max(history, 2*step)
	if shortest := history / maxRing; step < shortest {
		step = shortest
	}

	step = step.Truncate(time.Second)
	for step < maxStep && (day%step != 0 || history/step > maxRing) {
		step += time.Second
	}

	return step, min(history, maxRing*step)
}

// read queries the source for a batch and adds the answer to its entries.
func (p *Predictor) read(ctx context.Context, b batch) (err error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.ReadTimeout)
	defer cancel()

	ctx, span := tracing.Start(ctx, "prediction.forecast", "namespace", cmp.Or(b.namespace, b.group.namespace), "series", strconv.Itoa(len(b.plans)))
	defer func() { tracing.End(span, err) }()

	readCtx, readSpan := tracing.Start(ctx, "prediction.read")
	found, err := p.config.querySource(readCtx, b)
	tracing.End(readSpan, err)

	if err != nil {
		return err
	}

	now := p.config.Clock.Now()
	for _, e := range b.plans {
		// The locks of the predictor and of an entry are never held together.
		p.mu.Lock()
		allowance := p.requested.seriesAllowance(e)
		namespaces := maps.Clone(e.callers)
		p.mu.Unlock()
		price := func(caller string) float64 { return p.fleet.Price(namespaces[caller]) }
		n, next := e.addSamples(found(e), b.window.End, now, min(p.config.MaxSeriesPerQuery, allowance), price)
		p.mu.Lock()
		e.read = next
		p.requested.setModels(e, n)
		p.mu.Unlock()
	}

	return nil
}

// querySource returns the answer as a function of the entry.
func (c *Config) querySource(ctx context.Context, b batch) (func(*entry) []metrics.LabeledSeries, error) {
	if b.isExpression() {
		all, err := c.Source.Range(metrics.Yielding(ctx), b.plans[0].plan.query.Expression, b.window)
		if err != nil {
			return nil, err
		}

		return func(*entry) []metrics.LabeledSeries { return all }, nil
	}

	// Entries of one workload with different settings need its name once.
	var names []string
	for _, e := range b.plans {
		names = append(names, e.plan.query.Target.Name)
	}

	slices.Sort(names)
	names = slices.Compact(names)
	var byName map[string]series.Series

	var err error
	if b.group.kind == kindNode {
		byName, err = c.Source.NodeUsage(ctx, metrics.NodesRequest{Resource: b.group.resource, Names: names, Window: b.window})
	} else {
		byName, err = c.Source.WorkloadUsage(ctx, metrics.WorkloadsRequest{
			Resource:  b.group.resource,
			Namespace: b.group.namespace,
			Kind:      b.group.kind,
			Names:     names,
			Window:    b.window,
		})
	}

	if err != nil {
		return nil, fmt.Errorf("reading from %s: %w", b.window.Start.Format("2006-01-02T15:04"), err)
	}

	return func(e *entry) []metrics.LabeledSeries {
		values, ok := byName[e.plan.query.Target.Name]
		if !ok {
			return nil
		}

		return []metrics.LabeledSeries{{Series: values}}
	}, nil
}
