// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/metricadapter/status"
)

// externalSource is one of the sources of external metrics.
type externalSource interface {
	provider.ExternalMetricsProvider
	// Serves tells whether a metric is the source's. It asks nobody.
	Serves(metric string) bool
}

// externalSources answers from the first source that serves a metric.
type externalSources struct {
	names   []string // of the sources, for metrics
	sources []externalSource
	metrics *adapterMetrics
}

var _ provider.ExternalMetricsProvider = (*externalSources)(nil)

func (e *externalSources) add(name string, s externalSource) {
	e.names, e.sources = append(e.names, name), append(e.sources, s)
}

// GetExternalMetric implements provider.ExternalMetricsProvider.
func (e *externalSources) GetExternalMetric(ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo) (*external_metrics.ExternalMetricValueList, error) {
	for i, s := range e.sources {
		if !s.Serves(info.Metric) {
			continue
		}
		start := time.Now()
		list, err := s.GetExternalMetric(ctx, namespace, selector, info)
		e.metrics.observe("external", e.names[i], time.Since(start), err)
		return list, err
	}
	return nil, status.NotFound("%s: no rule finds series of it, and neither a remote adapter nor Crane itself serves it", info.Metric)
}

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (e *externalSources) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	return mergedList(e.sources, externalSource.ListAllExternalMetrics)
}
