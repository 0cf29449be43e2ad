// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/metricadapter/status"
)

// metricSource serves some metrics of an API.
type metricSource interface {
	// Serves reports whether a metric is one of the source's. It sends no request.
	Serves(metric string) bool
}

type externalSource interface {
	metricSource
	provider.ExternalMetricsProvider
}

type customSource interface {
	metricSource
	provider.CustomMetricsProvider
}

// sources serve each metric of an API from the first source that has it.
type sources[S metricSource] struct {
	api     string
	names   []string // label values of the metrics about requests
	sources []S
	metrics *adapterMetrics
}

func (s *sources[S]) add(name string, source S) {
	s.names, s.sources = append(s.names, name), append(s.sources, source)
}

// query calls read with the first source that serves a metric. found is false without one.
func (s *sources[S]) query(metric string, read func(S) error) (found bool, err error) {
	for i, source := range s.sources {
		if source.Serves(metric) {
			start := time.Now()
			err := read(source)
			s.metrics.observe(s.api, s.names[i], time.Since(start), err)
			return true, err
		}
	}
	return false, nil
}

// mergedList returns the metrics that any source lists, each once.
func mergedList[S any, T comparable](sources []S, list func(S) []T) []T {
	var all []T
	seen := map[T]bool{}
	for _, s := range sources {
		for _, metric := range list(s) {
			if !seen[metric] {
				seen[metric], all = true, append(all, metric)
			}
		}
	}
	return all
}

// externalSources serve the external metrics API.
type externalSources struct{ sources[externalSource] }

// GetExternalMetric implements provider.ExternalMetricsProvider.
func (e *externalSources) GetExternalMetric(
	ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo,
) (list *external_metrics.ExternalMetricValueList, err error) {
	found, err := e.query(info.Metric, func(s externalSource) error {
		list, err = s.GetExternalMetric(ctx, namespace, selector, info)
		return err
	})
	if !found {
		err = status.NotFound("%s: no rule finds series of it, and neither a remote adapter nor Crane itself serves it", info.Metric)
	}
	return list, err
}

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (e *externalSources) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	return mergedList(e.sources.sources, externalSource.ListAllExternalMetrics)
}

// customSources serve the custom metrics API.
type customSources struct{ sources[customSource] }

// GetMetricByName implements provider.CustomMetricsProvider.
func (c *customSources) GetMetricByName(
	ctx context.Context, name types.NamespacedName, info provider.CustomMetricInfo, selector labels.Selector,
) (value *custom_metrics.MetricValue, err error) {
	err = c.read(info, func(s customSource) error {
		value, err = s.GetMetricByName(ctx, name, info, selector)
		return err
	})
	return value, err
}

// GetMetricBySelector implements provider.CustomMetricsProvider.
func (c *customSources) GetMetricBySelector(
	ctx context.Context, namespace string, selector labels.Selector, info provider.CustomMetricInfo, metricSelector labels.Selector,
) (list *custom_metrics.MetricValueList, err error) {
	err = c.read(info, func(s customSource) error {
		list, err = s.GetMetricBySelector(ctx, namespace, selector, info, metricSelector)
		return err
	})
	return list, err
}

func (c *customSources) read(info provider.CustomMetricInfo, read func(customSource) error) error {
	found, err := c.query(info.Metric, read)
	if !found {
		return status.NotFound("%s of %s: no rule finds series of it, and no remote adapter serves it", info.Metric, info.GroupResource.String())
	}
	return err
}

// ListAllMetrics implements provider.CustomMetricsProvider.
func (c *customSources) ListAllMetrics() []provider.CustomMetricInfo {
	return mergedList(c.sources.sources, customSource.ListAllMetrics)
}
