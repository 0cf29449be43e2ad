// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Vectors answers instant queries with all samples. *prometheus.Source implements it.
type Vectors interface {
	Vector(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error)
	// Selector returns the selector of a series name, with the configured matchers.
	Selector(metric string, matchers ...prometheus.Matcher) (string, error)
}

// Usage is the usage of a node at one time, from metrics-server.
type Usage struct {
	Node        string
	Time        time.Time
	CPU, Memory resource.Quantity
}

// NodeUsages lists the usage of all nodes.
type NodeUsages interface {
	NodeUsages(ctx context.Context) ([]Usage, error)
}

// Forecaster returns the peak of the coming hour.
type Forecaster interface {
	// Request sets the forecasts that are needed.
	Request(nodes []string, resources []units.Resource)
	// Peak returns the highest value of the coming hour in cores or bytes; false if there is no forecast yet or its
	// samples are stale.
	Peak(node string, resource units.Resource) (value float64, ok bool)
}

// problem is why a node has no new value of a metric; empty if it has one.
type problem string

const (
	noSeries    problem = "no series"
	noSample    problem = "no recent sample"
	twoSeries   problem = "two series"
	notANumber  problem = "not a number"
	negative    problem = "negative"
	tooLarge    problem = "too large"
	noCapacity  problem = "no capacity"
	noForecast  problem = "no forecast"
	notReported problem = "not reported"
)

// problems returns all of them, for metrics.
func problems() []problem {
	return []problem{noSeries, noSample, twoSeries, notANumber, negative, tooLarge, noCapacity, noForecast, notReported}
}

// reading holds the values of a metric, by index of the node.
type reading struct {
	metric    int
	samples   []nodeload.Sample
	problems  []problem
	unmatched int
	// undated is why the sample times of all nodes are unknown; empty if they are known.
	undated string
	err     error
}

// reader reads metrics for a list of nodes.
type reader struct {
	sources Sources
	nodes   []node
	match   *matcher
	now     time.Time
	times   sampleTimes
}

// Sources are the sources of metrics. A source that the policy does not use may be nil.
type Sources struct {
	Prometheus    Vectors
	MetricsServer NodeUsages
	Forecast      Forecaster
}

// read reads metrics concurrently, each with one query for all nodes; metrics of metrics-server share one request.
func (r *reader) read(ctx context.Context, list []nodeload.Metric, due []int) []reading {
	out := make([]reading, len(due))
	// All metrics of metrics-server come with its one list, which is read when the first of them needs it.
	usages := sync.OnceValues(func() ([]Usage, error) {
		if r.sources.MetricsServer == nil {
			return nil, errNoSource
		}

		return r.sources.MetricsServer.NodeUsages(ctx)
	})

	var wg sync.WaitGroup
	for i, metric := range due {
		wg.Go(func() {
			result := reading{
				metric:   metric,
				samples:  make([]nodeload.Sample, len(r.nodes)),
				problems: make([]problem, len(r.nodes)),
			}
			switch m := list[metric]; m.From {
			case nodeload.FromMetricsServer:
				result.err = r.fromMetricsServer(m, &result, usages)
			case nodeload.FromForecast:
				result.err = r.fromForecast(m, &result)
			default:
				result.err = r.fromPrometheus(ctx, m, &result)
			}

			out[i] = result
		})
	}

	wg.Wait()
	return out
}

var errNoSource = errors.New("the source is not configured")

// recordedSeries returns the series that rules record, if there are any: a scraped series has a label job, and is of whoever runs a pod that is scraped,
// with any name and any label node.
func recordedSeries(vector []metrics.Sample) []metrics.Sample {
	isScraped := func(s metrics.Sample) bool { return s.Labels["job"] != "" }
	if recorded := slices.DeleteFunc(slices.Clone(vector), isScraped); len(recorded) > 0 {
		return recorded
	}

	return vector
}

func (r *reader) fromPrometheus(ctx context.Context, m nodeload.Metric, result *reading) error {
	if r.sources.Prometheus == nil {
		return errNoSource
	}

	query := m.Query
	if query == "" {
		selector, err := r.sources.Prometheus.Selector(m.Name)
		if err != nil {
			return err
		}

		query = selector
	}

	vector, err := r.sources.Prometheus.Vector(ctx, query, r.now)
	if err != nil {
		return err
	}

	vector = recordedSeries(vector)

	for i := range result.problems {
		result.problems[i] = noSeries
	}

	times, undated := r.sampleTimes(ctx, m)
	result.undated = undated
	seen := make([]bool, len(r.nodes))
	for _, s := range vector {
		i, ok := r.match.find(s.Labels)
		if !ok {
			result.unmatched++
			continue
		}

		// Two series may be of two exporters or of an old and a new one; neither is better.
		if seen[i] {
			result.samples[i] = nodeload.Sample{}
			result.problems[i] = twoSeries
			continue
		}

		seen[i] = true
		// Without sample times the value may be as old as Prometheus looks back.
		at := r.now.Add(-nodeload.UndatedAge)
		if undated == "" {
			if times[i].IsZero() {
				result.samples[i] = nodeload.Sample{}
				result.problems[i] = noSample
				continue
			}

			at = times[i]
		}

		result.set(i, s.Value/100, at)
	}

	return nil
}

func (r *reader) fromMetricsServer(m nodeload.Metric, result *reading, usages func() ([]Usage, error)) error {
	list, err := usages()
	if err != nil {
		return fmt.Errorf("reading metrics-server: %w", err)
	}

	// A node without an entry in the list stays not reported.
	for i := range result.problems {
		result.problems[i] = notReported
	}

	for _, u := range list {
		i, ok := r.match.byName[u.Node]
		if !ok {
			result.unmatched++
			continue
		}

		used := u.CPU.AsApproximateFloat64()
		if m.Resource == units.Memory {
			used = u.Memory.AsApproximateFloat64()
		}

		r.share(i, m, used, u.Time, result)
	}

	return nil
}

func (r *reader) fromForecast(m nodeload.Metric, result *reading) error {
	if r.sources.Forecast == nil {
		return errNoSource
	}

	for i := range r.nodes {
		peak, ok := r.sources.Forecast.Peak(r.nodes[i].name, m.Resource)
		if !ok {
			result.problems[i] = noForecast
			continue
		}

		r.share(i, m, peak, r.now, result)
	}

	return nil
}

// share stores usage as a share of the node's capacity.
func (r *reader) share(i int, m nodeload.Metric, used float64, at time.Time, result *reading) {
	capacity := r.nodes[i].capacity[m.Resource]
	if !(capacity > 0) {
		result.problems[i] = noCapacity
		return
	}

	result.set(i, used/capacity, at)
}

// set stores a value, or the problem with it.
func (r *reading) set(i int, v float64, at time.Time) {
	r.samples[i] = nodeload.Sample{}
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		r.problems[i] = notANumber
	case v < 0:
		r.problems[i] = negative
	case v > float64(nodeload.MaxLoad):
		r.problems[i] = tooLarge
	default:
		r.problems[i] = ""
		r.samples[i] = nodeload.Sample{Value: units.Ratio(v), Time: at}
	}
}

// toNodes extracts the fields that a round needs.
func toNodes(list []corev1.Node) []node {
	out := make([]node, len(list))
	for i := range list {
		out[i] = nodeOf(&list[i])
	}

	return out
}
