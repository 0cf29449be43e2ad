// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
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
	figures *figures
}

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
		e.figures.observe("external", e.names[i], time.Since(start), err)
		return list, err //nolint:wrapcheck // It is a status, which wrapping would hide.
	}
	return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", external_metrics.Resource("externalmetrics"), info.Metric,
		"no rule, no remote adapter and not Crane itself serves this metric", 0, false)
}

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (e *externalSources) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	var all []provider.ExternalMetricInfo
	seen := map[provider.ExternalMetricInfo]bool{}
	for _, s := range e.sources {
		for _, info := range s.ListAllExternalMetrics() {
			if !seen[info] {
				seen[info], all = true, append(all, info)
			}
		}
	}
	return all
}
