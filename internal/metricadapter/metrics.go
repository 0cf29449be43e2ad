// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/internal/metrics/promadapter"
)

// adapterMetrics are the metrics that the adapter exports about itself.
type adapterMetrics struct {
	registry prometheus.Registerer
	duration *prometheus.HistogramVec
	requests *prometheus.CounterVec
}

func newAdapterMetrics(r prometheus.Registerer) (*adapterMetrics, error) {
	f := &adapterMetrics{
		registry: r,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "crane_metric_adapter_request_duration_seconds",
			Help: "Time to serve a request for a metric in seconds, by API, source and HTTP status, without authentication and encoding.",
			// A metric of Crane takes microseconds, one of PromQL as long as its query.
			Buckets: []float64{
				1e-5, 2.5e-5, 5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 8e-4, 1e-3, 1.25e-3, 1.5e-3, 2e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.25, 1, 5, 30,
			},
		}, []string{"api", "source", "code"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_metric_adapter_kubernetes_requests_total",
			Help: "Requests to the Kubernetes API server, by method: watches, access reviews and certificates.",
		}, []string{"method"}),
	}

	for _, c := range []prometheus.Collector{f.duration, f.requests} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}

	return f, nil
}

func (f *adapterMetrics) observe(api, source string, took time.Duration, err error) {
	code := http.StatusOK
	if err != nil {
		code = http.StatusInternalServerError
		if status, ok := err.(apierrors.APIStatus); ok { // The server returns a status error as it is, but not a wrapped one.
			code = int(status.Status().Code)
		}
	}

	f.duration.WithLabelValues(api, source, strconv.Itoa(code)).Observe(took.Seconds())
}

// countRequests wraps a transport to the API server.
func (f *adapterMetrics) countRequests(next http.RoundTripper) http.RoundTripper {
	return countingTransport{next: next, requests: f.requests}
}

type countingTransport struct {
	next     http.RoundTripper
	requests *prometheus.CounterVec
}

// RoundTrip implements http.RoundTripper.
func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.WithLabelValues(r.Method).Inc()
	return c.next.RoundTrip(r)
}

// registerRules registers the metrics about the file with the rules and about the rules that have no effect.
func (f *adapterMetrics) registerRules(state func() configfile.State, ineffective func() []promadapter.IneffectiveRule) error {
	for _, g := range []prometheus.Collector{
		ineffectiveRules(ineffective),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "crane_metric_adapter_rules_loaded_timestamp_seconds", Help: "Unix time at which the rules in force were read, in seconds.",
		}, func() float64 { return float64(state().Loaded.Unix()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "crane_metric_adapter_rules_invalid", Help: "1 while the file with the rules is invalid and older rules are in force, else 0.",
		}, func() float64 {
			if state().Invalid {
				return 1
			}

			return 0
		}),
	} {
		if err := f.registry.Register(g); err != nil {
			return err
		}
	}

	return nil
}

var ruleWithoutEffectDesc = prometheus.NewDesc("crane_metric_adapter_rule_without_effect",
	"1 for each rule that defines no metric, by the reason: refused where it is invalid, not_listed where the server refuses its seriesQuery or it finds "+
		"more than 10,000 names, no_series where it finds none, no_match where its filters and name leave none.",
	[]string{"rule", "reason"}, nil)

// ineffectiveRules collects the rules that define no metric.
type ineffectiveRules func() []promadapter.IneffectiveRule

// Describe implements prometheus.Collector.
func (r ineffectiveRules) Describe(ch chan<- *prometheus.Desc) { ch <- ruleWithoutEffectDesc }

// Collect implements prometheus.Collector.
func (r ineffectiveRules) Collect(ch chan<- prometheus.Metric) {
	for _, rule := range r() {
		seriesguard.Send(ch, ruleWithoutEffectDesc, prometheus.GaugeValue, 1, rule.Rule, rule.Reason)
	}
}
