// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
)

// Query says what is read: the use of a workload or node (Target and Resource), or an expression of the source.
type Query struct {
	// Target is a workload, or a node where its Kind is Node. Its APIVersion does not count: sources do not know it.
	Target   workload.Ref     `json:"target,omitzero"`
	Resource metrics.Resource `json:"resource,omitempty"`
	// Expression is in the language of the source; it is used where Resource is empty.
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

// Request names a series, or the several series of an expression, and how they are forecast.
type Request struct {
	Query Query
	// Algorithm is a name of package registry; empty means auto. Options are its settings.
	Algorithm string
	Options   registry.Options
	// Aggregated puts all series of the query into one distribution; for percentile alone.
	Aggregated bool
	// Scaling asks for an account beside the forecast, which is the caller's own; nil for none.
	Scaling *Scaling
}

// Key identifies what a Request asks for; equal requests have equal keys.
type Key [sha256.Size]byte

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Limits of what can be asked for.
const (
	// defaultStep is the distance of samples where nothing is said.
	defaultStep = time.Minute
	// minStep and maxStep bound it; gocrane wanted at most an hour.
	minStep, maxStep = 15 * time.Second, time.Hour
	// autoHistory is what the model of auto holds.
	autoHistory = 14 * day
	// dspHistory and percentileHistory are the defaults of these algorithms.
	dspHistory, percentileHistory = 15 * day, 7 * day
	// maxRing is how many samples are kept of one series for algorithms that look at samples.
	maxRing = 25_000

	day = 24 * time.Hour
)

// plan is a request as it is carried out.
type plan struct {
	key           Key
	query         Query
	name          string
	algorithm     forecast.Algorithm
	step, history time.Duration
	aggregated    bool
	// level is the quantile to publish; percentile replaces it by its own estimate.
	level float64
}

// newPlan checks a request. An error is a sentence for the user.
func newPlan(r Request) (plan, error) {
	if r.Query.Resource != "" {
		r.Query.Expression, r.Query.Target.APIVersion = "", ""
		if r.Query.Target.Kind == "" || r.Query.Target.Name == "" {
			return plan{}, errors.New("the target needs a kind and a name")
		}
		if r.Query.Resource != metrics.CPU && r.Query.Resource != metrics.Memory {
			return plan{}, fmt.Errorf("resource %q: want %s or %s", r.Query.Resource, metrics.CPU, metrics.Memory)
		}
	} else if r.Query.Expression == "" {
		return plan{}, errors.New("there is nothing to query: neither a resource nor an expression")
	}
	algorithm, err := registry.New(r.Algorithm, r.Options)
	if err != nil {
		return plan{}, fmt.Errorf("algorithm: %w", err)
	}
	p := plan{query: r.Query, name: algorithm.Name(), algorithm: algorithm, step: defaultStep, history: autoHistory, level: 0.95}
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
		// Samples of different series are not averaged with each other: the algorithm takes every one.
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
	return p, nil
}

// durations reads what the algorithm has validated, and bounds it: whole seconds that divide a day, and no more samples
// than are kept.
func durations(interval, length string, fallback time.Duration) (step, history time.Duration) {
	step, history = defaultStep, fallback
	if d, err := series.ParseDuration(interval); err == nil && interval != "" {
		step = min(max(d, minStep), maxStep)
	}
	if d, err := series.ParseDuration(length); err == nil && length != "" {
		history = d
	}
	history = max(history, 2*step)
	if least := history / maxRing; step < least {
		step = least
	}
	step = step.Truncate(time.Second)
	for step < maxStep && (day%step != 0 || history/step > maxRing) {
		step += time.Second
	}
	return step, min(history, maxRing*step)
}
