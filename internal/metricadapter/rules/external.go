// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/metricadapter/status"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
)

// External serves the external metrics of a Provider.
type External struct{ *Provider }

var _ provider.ExternalMetricsProvider = External{}

// Serves reports whether a rule defines an external metric.
func (e External) Serves(metric string) bool {
	rules, series := e.current()
	return rules.HasExternal(series, metric)
}

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (e External) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	rules, series := e.current()
	if series == nil {
		return nil
	}

	var all []provider.ExternalMetricInfo
	for _, k := range series.External(rules) {
		all = append(all, provider.ExternalMetricInfo{Metric: k.Metric})
	}

	return all
}

// GetExternalMetric implements provider.ExternalMetricsProvider. A value that is no number fails the whole request, because an HPA
// adds the values up, and a partial sum would be wrong.
func (e External) GetExternalMetric(ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo) (*external_metrics.ExternalMetricValueList, error) {
	matchers, err := promadapter.SelectorMatchers(selector)
	if err != nil {
		return nil, status.BadRequest("%s: %v", info.Metric, err)
	}

	rules, series := e.current()
	expr, found, err := rules.ExternalExpr(series, info.Metric, namespace, matchers)
	switch {
	case err != nil:
		return nil, ruleError(info.Metric, err)
	case !found:
		return nil, status.NotFound("%s: no rule defines this metric", info.Metric)
	}

	samples, err := e.query(ctx, info.Metric, expr)
	if err != nil {
		return nil, err
	}

	list := &external_metrics.ExternalMetricValueList{Items: make([]external_metrics.ExternalMetricValue, 0, len(samples))}
	for _, s := range samples {
		// A value that is not a number fails the request: leaving it out would lower the sum.
		value, ok := quantity(s.Value)
		if !ok {
			return nil, status.Unavailable("%s: the value of %v is %v, which is not a number", info.Metric, s.Labels, s.Value)
		}

		delete(s.Labels, "__name__")
		list.Items = append(list.Items, external_metrics.ExternalMetricValue{
			MetricName:   info.Metric,
			MetricLabels: s.Labels,
			Timestamp:    metav1.NewTime(s.Time),
			Value:        value,
		})
	}

	return list, nil
}

// ruleError returns the status of a metric for which a rule gives no query: a listing follows, anything else needs another request.
func ruleError(metric string, err error) error {
	if errors.Is(err, promadapter.ErrNotListed) {
		return status.Unavailable("%s: %v", metric, err)
	}

	return status.Unprocessable("%s: %v", metric, err)
}

// query evaluates the query of a metric. No series, and too many, are errors.
func (p *Provider) query(ctx context.Context, metric, expr string) ([]metrics.Sample, error) {
	samples, err := p.Query(ctx, expr, p.Clock.Now())
	switch {
	case err != nil:
		return nil, status.Unavailable("%s: %s", metric, metrics.PublicMessage(err))
	case len(samples) == 0:
		return nil, status.NotFound("%s: no series match: %s", metric, expr)
	case len(samples) > maxValues:
		return nil, status.Unprocessable("%s: %d series match, more than %d: aggregate them in the rule: %s", metric, len(samples), maxValues, expr)
	}

	return samples, nil
}

// quantity converts a value, to a thousandth; ok is false for NaN and infinity.
func quantity(v float64) (q resource.Quantity, ok bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return q, false
	}

	q = scalingmetric.NewQuantity(math.Abs(v))
	if v < 0 {
		q.Neg()
	}

	return q, true
}
