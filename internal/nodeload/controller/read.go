// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/series"
)

// Vectors answers instant queries and leaves no sample out. *prometheus.Source is one.
type Vectors interface {
	Vector(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error)
	// Selector writes the name of a series as a selector, with the matchers of the configuration.
	Selector(metric string, own ...prometheus.Matcher) (string, error)
}

// Usage is what a node uses at one time, by metrics-server.
type Usage struct {
	Node        string
	Time        time.Time
	CPU, Memory resource.Quantity
}

// NodeUsages lists what all nodes use.
type NodeUsages interface {
	NodeUsages(ctx context.Context) ([]Usage, error)
}

// Forecaster knows the peak of the coming hour.
type Forecaster interface {
	// Want says whose forecasts are asked for from now on.
	Want(nodes []string, resources []nodeload.Resource)
	// Peak is the highest value of the coming hour in cores or bytes; false where there is no forecast yet, or only one of
	// which samples are missing.
	Peak(node string, of nodeload.Resource) (value float64, ok bool)
}

// problem says why a node has no new value of a metric; empty: it has one.
type problem string

const (
	noSeries    problem = "no series"
	twoSeries   problem = "two series"
	notANumber  problem = "not a number"
	negative    problem = "negative"
	tooLarge    problem = "too large"
	noCapacity  problem = "no capacity"
	noForecast  problem = "no forecast"
	notReported problem = "not reported"
)

// problems are all of them, for metrics.
func problems() []problem {
	return []problem{noSeries, twoSeries, notANumber, negative, tooLarge, noCapacity, noForecast, notReported}
}

// reading is what a metric says of all nodes, by their index.
type reading struct {
	metric    int
	samples   []nodeload.Sample
	problems  []problem
	unmatched int
	err       error
}

// reader reads metrics for one list of nodes.
type reader struct {
	sources Sources
	nodes   []node
	match   *matcher
	now     time.Time
}

// Sources are where metrics come from. What a policy does not use may be nil.
type Sources struct {
	Prometheus    Vectors
	MetricsServer NodeUsages
	Forecast      Forecaster
}

// read reads metrics at once, each with one question for all nodes; those of metrics-server share one.
func (r *reader) read(ctx context.Context, list []nodeload.Metric, due []int) []reading {
	out := make([]reading, len(due))
	usages := sync.OnceValues(func() ([]Usage, error) {
		if r.sources.MetricsServer == nil {
			return nil, errNoSource
		}
		return r.sources.MetricsServer.NodeUsages(ctx)
	})
	var wg sync.WaitGroup
	for i, metric := range due {
		wg.Go(func() {
			one := reading{metric: metric, samples: make([]nodeload.Sample, len(r.nodes)), problems: make([]problem, len(r.nodes))}
			switch m := list[metric]; m.From {
			case nodeload.FromMetricsServer:
				one.err = r.fromMetricsServer(m, &one, usages)
			case nodeload.FromForecast:
				one.err = r.fromForecast(m, &one)
			default:
				one.err = r.fromPrometheus(ctx, m, &one)
			}
			out[i] = one
		})
	}
	wg.Wait()
	return out
}

var errNoSource = errors.New("the source is not configured")

func (r *reader) fromPrometheus(ctx context.Context, m nodeload.Metric, to *reading) error {
	if r.sources.Prometheus == nil {
		return errNoSource
	}
	query := m.Query
	if query == "" {
		var err error
		if query, err = r.sources.Prometheus.Selector(m.Name); err != nil {
			return err
		}
	}
	vector, err := r.sources.Prometheus.Vector(ctx, query, r.now)
	if err != nil {
		return err
	}
	for i := range to.problems {
		to.problems[i] = noSeries
	}
	seen := make([]bool, len(r.nodes))
	for _, s := range vector {
		i, ok := r.match.find(s.Labels)
		if !ok {
			to.unmatched++
			continue
		}
		if seen[i] {
			to.samples[i], to.problems[i] = nodeload.Sample{}, twoSeries
			continue
		}
		seen[i] = true
		to.set(i, s.Value/100, r.now)
	}
	return nil
}

func (r *reader) fromMetricsServer(m nodeload.Metric, to *reading, usages func() ([]Usage, error)) error {
	list, err := usages()
	if err != nil {
		return fmt.Errorf("metrics-server: %w", err)
	}
	for i := range to.problems {
		to.problems[i] = notReported
	}
	for _, u := range list {
		i, ok := r.match.byName[u.Node]
		if !ok {
			to.unmatched++
			continue
		}
		used := u.CPU.AsApproximateFloat64()
		if m.Resource == nodeload.Memory {
			used = u.Memory.AsApproximateFloat64()
		}
		r.share(i, m, used, u.Time, to)
	}
	return nil
}

func (r *reader) fromForecast(m nodeload.Metric, to *reading) error {
	if r.sources.Forecast == nil {
		return errNoSource
	}
	for i := range r.nodes {
		peak, ok := r.sources.Forecast.Peak(r.nodes[i].name, m.Resource)
		if !ok {
			to.problems[i] = noForecast
			continue
		}
		r.share(i, m, peak, r.now, to)
	}
	return nil
}

// share sets what is used as a share of the node's capacity.
func (r *reader) share(i int, m nodeload.Metric, used float64, at time.Time, to *reading) {
	capacity := r.nodes[i].capacity[m.Resource]
	if !(capacity > 0) {
		to.problems[i] = noCapacity
		return
	}
	to.set(i, used/capacity, at)
}

// set takes a value over or says what is wrong with it.
func (to *reading) set(i int, v float64, at time.Time) {
	to.samples[i] = nodeload.Sample{}
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		to.problems[i] = notANumber
	case v < 0:
		to.problems[i] = negative
	case v > float64(nodeload.MaxLoad):
		to.problems[i] = tooLarge
	default:
		to.problems[i] = ""
		to.samples[i] = nodeload.Sample{Value: series.Ratio(v), Time: at}
	}
}

// toNodes makes what a round needs of a list of Nodes.
func toNodes(list []corev1.Node) []node {
	out := make([]node, len(list))
	for i := range list {
		out[i] = nodeOf(&list[i])
	}
	return out
}
