// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seriesguard keeps single collectors from breaking the answer of /metrics. Collectors export values and names that tenants can write, and a
// registry refuses a whole answer for one series that is invalid or exists twice.
package seriesguard

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Reasons for which a series is left out.
const (
	reasonInvalid   = "invalid"
	reasonDuplicate = "duplicate"
	reasonNotFinite = "not_finite"
	reasonLongLabel = "long_label"
	reasonTooMany   = "too_many"
)

// Registerer registers collectors, each with a guard. It implements prometheus.Registerer and is safe for concurrent use.
//
// A guard leaves out series that are invalid, that exist twice, that are not finite, or that have a label of more than 1024 bytes. The series of a
// collector take at most 32 MiB, of which a namespace has at most the half; where many namespaces need more, all have equal shares. A collector
// that panics is left out as a whole.
type Registerer struct {
	next prometheus.Registerer
	log  logr.Logger
}

// New returns a Registerer that registers with next. Several of one registry share their counters.
func New(next prometheus.Registerer, log logr.Logger) *Registerer {
	return &Registerer{next: next, log: log}
}

// Register implements prometheus.Registerer.
func (r *Registerer) Register(c prometheus.Collector) error {
	counts, err := newCounts(r.next)
	if err != nil {
		return err
	}

	return r.next.Register(&guard{Collector: c, counts: counts, log: r.log})
}

// MustRegister implements prometheus.Registerer.
func (r *Registerer) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		err := r.Register(c)
		if err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer. A registry recognizes collectors by their descriptions.
func (r *Registerer) Unregister(c prometheus.Collector) bool { return r.next.Unregister(c) }

// Handler serves the metrics of a registry. If some of them cannot be gathered, it logs the error and serves the others.
func Handler(registry prometheus.Gatherer, log logr.Logger, opts promhttp.HandlerOpts) http.Handler {
	opts.ErrorHandling = promhttp.ContinueOnError
	opts.ErrorLog = errorLog{log}

	return promhttp.HandlerFor(registry, opts)
}

// errorLog implements promhttp.Logger.
type errorLog struct{ log logr.Logger }

func (l errorLog) Println(parts ...any) {
	l.log.Error(errors.New(strings.TrimSpace(fmt.Sprintln(parts...))), "serving metrics")
}

// counts count what guards leave out.
type counts struct {
	series     *prometheus.CounterVec
	collectors *prometheus.CounterVec
}

// newCounts returns the counters of a registry.
func newCounts(next prometheus.Registerer) (counts, error) {
	series, err := registered(next, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "crane_metrics_series_left_out_total",
		Help: "Series left out of answers of /metrics, once for each answer, by metric and reason: invalid, duplicate, not_finite, long_label or too_many.",
	}, []string{"metric", "reason"}))
	if err != nil {
		return counts{}, err
	}

	collectors, err := registered(next, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "crane_metrics_collector_failures_total",
		Help: "Answers of /metrics without the metrics of a collector that failed, by the first of them.",
	}, []string{"metric"}))
	if err != nil {
		return counts{}, err
	}

	return counts{series: series, collectors: collectors}, nil
}

// registered registers a counter and returns it, or the one that is registered already.
func registered(next prometheus.Registerer, counter *prometheus.CounterVec) (*prometheus.CounterVec, error) {
	err := next.Register(counter)
	if err == nil {
		return counter, nil
	}

	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		existing, ok := already.ExistingCollector.(*prometheus.CounterVec)
		if ok {
			return existing, nil
		}
	}

	return nil, fmt.Errorf("registering the counters of series left out: %w", err)
}

// guard is a collector of which single series or all are left out.
type guard struct {
	prometheus.Collector

	counts counts
	log    logr.Logger
}

// Collect implements prometheus.Collector.
func (g *guard) Collect(to chan<- prometheus.Metric) {
	a := newAnswer()
	err := g.collect(a)
	if err != nil {
		name := g.name()
		g.counts.collectors.WithLabelValues(name).Inc()
		g.log.Error(err, "left the metrics of a collector out of an answer", "metric", name)

		return
	}

	collected := a.finish()
	for key, n := range a.leftOut {
		g.counts.series.WithLabelValues(key.metric, key.reason).Add(float64(n))
	}

	if len(a.leftOut) > 0 {
		g.log.V(1).Info("left series out of an answer", "leftOut", a.leftOut)
	}

	for _, s := range collected {
		to <- s.metric
	}
}

// collect adds the metrics of the collector to an answer. A panic of the collector, or of a function that computes a value, is an error.
func (g *guard) collect(a *answer) error {
	metrics := make(chan prometheus.Metric, 100)
	collected := make(chan error, 1)
	go func() {
		defer close(metrics)

		collected <- recovered(func() { g.Collector.Collect(metrics) })
	}()

	// The collector ends only if its metrics are received.
	var failed error
	for m := range metrics {
		if failed == nil {
			failed = recovered(func() { a.add(m) })
		}
	}

	return errors.Join(<-collected, failed)
}

// recovered calls a function and returns its panic as an error.
func recovered(call func()) (err error) {
	defer func() {
		reason := recover()
		if reason != nil {
			err = fmt.Errorf("collecting metrics: panic: %v", reason)
		}
	}()

	call()

	return nil
}

// name returns the name of the first metric that the collector describes.
func (g *guard) name() string {
	descriptions := make(chan *prometheus.Desc, 100)
	go func() {
		defer close(descriptions)

		g.Collector.Describe(descriptions)
	}()

	name := ""
	for d := range descriptions {
		if name == "" {
			name = nameOf(d)
		}
	}

	return name
}

// nameOf returns the name of a metric, which a description shows in its text only.
func nameOf(d *prometheus.Desc) string {
	_, rest, _ := strings.Cut(d.String(), `fqName: "`)
	name, _, _ := strings.Cut(rest, `"`)

	return name
}

// Send sends a metric. If its labels are not valid, it sends an invalid metric, which a guard leaves out.
func Send(to chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	m, err := prometheus.NewConstMetric(d, kind, value, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}

	to <- m
}
