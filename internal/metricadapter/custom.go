// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/metricadapter/status"
)

// customSource is one of the sources of custom metrics.
type customSource interface {
	provider.CustomMetricsProvider
	// Serves tells whether a metric is the source's. It asks nobody.
	Serves(metric string) bool
}

// customSources answers from the first source that serves a metric.
type customSources struct {
	names   []string // of the sources, for metrics
	sources []customSource
	metrics *adapterMetrics
}

var _ provider.CustomMetricsProvider = (*customSources)(nil)

func (c *customSources) add(name string, s customSource) {
	c.names, c.sources = append(c.names, name), append(c.sources, s)
}

// GetMetricByName implements provider.CustomMetricsProvider.
func (c *customSources) GetMetricByName(ctx context.Context, name types.NamespacedName, info provider.CustomMetricInfo, selector labels.Selector) (value *custom_metrics.MetricValue, err error) {
	err = c.query(info, func(s customSource) error {
		value, err = s.GetMetricByName(ctx, name, info, selector)
		return err
	})
	return value, err
}

// GetMetricBySelector implements provider.CustomMetricsProvider.
func (c *customSources) GetMetricBySelector(ctx context.Context, namespace string, selector labels.Selector, info provider.CustomMetricInfo, metricSelector labels.Selector) (list *custom_metrics.MetricValueList, err error) {
	err = c.query(info, func(s customSource) error {
		list, err = s.GetMetricBySelector(ctx, namespace, selector, info, metricSelector)
		return err
	})
	return list, err
}

func (c *customSources) query(info provider.CustomMetricInfo, ask func(customSource) error) error {
	for i, s := range c.sources {
		if s.Serves(info.Metric) {
			start := time.Now()
			err := ask(s)
			c.metrics.observe("custom", c.names[i], time.Since(start), err)
			return err
		}
	}
	return status.NotFound("%s of %s: no rule finds series of it, and no remote adapter serves it", info.Metric, info.GroupResource.String())
}

// ListAllMetrics implements provider.CustomMetricsProvider.
func (c *customSources) ListAllMetrics() []provider.CustomMetricInfo {
	return mergedList(c.sources, customSource.ListAllMetrics)
}

// mergedList is what any source lists, each once.
func mergedList[S any, T comparable](sources []S, list func(S) []T) []T {
	var all []T
	seen := map[T]bool{}
	for _, s := range sources {
		for _, one := range list(s) {
			if !seen[one] {
				seen[one], all = true, append(all, one)
			}
		}
	}
	return all
}
