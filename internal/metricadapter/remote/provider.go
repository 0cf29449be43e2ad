// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	customv1beta1 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	"k8s.io/metrics/pkg/apis/external_metrics"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/apiserver"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/metricadapter/refreshloop"
	"crane.io/crane/internal/metricadapter/status"
)

// Provider serves the metrics of another adapter.
type Provider struct {
	client   *client
	interval time.Duration
	clock    clock.WithTicker

	mu        sync.Mutex
	served    servedMetrics
	lastError error // of the last discovery
}

// servedMetrics are the metrics that the other adapter lists.
type servedMetrics struct {
	external []provider.ExternalMetricInfo
	custom   []provider.CustomMetricInfo
	// noExternal and noCustom mark an API that it does not serve at all.
	noExternal, noCustom bool
	// oldCustom marks an adapter with v1beta1 of custom metrics alone.
	oldCustom bool
}

// New returns a Provider that lists the metrics of the other adapter at an interval.
func New(c Config, interval time.Duration, clk clock.WithTicker) (*Provider, error) {
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}

	return &Provider{
		client:    client,
		interval:  interval,
		clock:     clk,
		lastError: errors.New("the remote adapter has not answered yet"),
	}, nil
}

// Ready returns the error of the last discovery, nil after a success.
func (p *Provider) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.lastError
}

func (p *Provider) currentMetrics() servedMetrics {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.served
}

// Run lists the metrics of the other adapter until ctx ends.
func (p *Provider) Run(ctx context.Context) error {
	return refreshloop.Run(ctx, "remote", p.clock, p.interval, nil, func(ctx context.Context) error {
		found, err := p.discover(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()

		p.lastError = err

		if err == nil {
			p.served = found
		}

		return err
	})
}

// discover lists the metrics of the other adapter.
func (p *Provider) discover(ctx context.Context) (servedMetrics, error) {
	var s servedMetrics
	var list metav1.APIResourceList
	switch err := p.client.get(ctx, apiPath(externalv1beta1.SchemeGroupVersion), nil, &list); {
	case isNotFound(err):
		s.noExternal = true
	case err != nil:
		return s, err
	}

	for _, r := range list.APIResources {
		s.external = append(s.external, provider.ExternalMetricInfo{Metric: r.Name})
	}

	// Older adapters serve v1beta1 of the custom metrics alone.
	list = metav1.APIResourceList{}
	err := p.client.get(ctx, apiPath(customv1beta2.SchemeGroupVersion), nil, &list)
	if isNotFound(err) {
		s.oldCustom = true
		err = p.client.get(ctx, apiPath(customv1beta1.SchemeGroupVersion), nil, &list)
	}

	switch {
	case isNotFound(err):
		s.noCustom = true
	case err != nil:
		return s, err
	}

	for _, r := range list.APIResources {
		if kind, metric, ok := strings.Cut(r.Name, "/"); ok {
			s.custom = append(s.custom, provider.CustomMetricInfo{GroupResource: schema.ParseGroupResource(kind), Namespaced: r.Namespaced, Metric: metric})
		}
	}

	return s, nil
}

func isNotFound(err error) bool { return apierrors.ReasonForError(err) == metav1.StatusReasonNotFound }

func apiPath(gv schema.GroupVersion) string { return "/apis/" + gv.String() }

// External serves the external metrics of a Provider.
type External struct{ *Provider }

// Custom serves the custom metrics of a Provider.
type Custom struct{ *Provider }

var (
	_ provider.ExternalMetricsProvider = External{}
	_ provider.CustomMetricsProvider   = Custom{}
)

// Serves reports whether the other adapter may serve a metric. Some adapters do not list theirs.
func (e External) Serves(string) bool { return !e.currentMetrics().noExternal }

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (e External) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	return e.currentMetrics().external
}

// GetExternalMetric implements provider.ExternalMetricsProvider.
func (e External) GetExternalMetric(ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo) (*external_metrics.ExternalMetricValueList, error) {
	path := apiPath(externalv1beta1.SchemeGroupVersion) + "/namespaces/" + url.PathEscape(namespace) + "/" + url.PathEscape(info.Metric)
	var list externalv1beta1.ExternalMetricValueList
	if err := e.client.get(ctx, path, withSelector(nil, "labelSelector", selector), &list); err != nil {
		return nil, err
	}

	out := &external_metrics.ExternalMetricValueList{}
	if err := apiserver.Scheme.Convert(&list, out, nil); err != nil {
		return nil, status.Unavailable("remote adapter: %v", err)
	}

	return out, nil
}

// Serves reports whether the other adapter may serve a metric.
func (c Custom) Serves(string) bool { return !c.currentMetrics().noCustom }

// ListAllMetrics implements provider.CustomMetricsProvider.
func (c Custom) ListAllMetrics() []provider.CustomMetricInfo { return c.currentMetrics().custom }

// GetMetricByName implements provider.CustomMetricsProvider.
func (c Custom) GetMetricByName(ctx context.Context, name types.NamespacedName, info provider.CustomMetricInfo, selector labels.Selector) (*custom_metrics.MetricValue, error) {
	list, err := c.read(ctx, name.Namespace, name.Name, info, nil, selector)
	if err != nil {
		return nil, err
	}

	if len(list.Items) != 1 {
		return nil, status.NotFound("remote adapter: %d values of %s for %s", len(list.Items), info.Metric, name)
	}

	return &list.Items[0], nil
}

// GetMetricBySelector implements provider.CustomMetricsProvider.
func (c Custom) GetMetricBySelector(ctx context.Context, namespace string, selector labels.Selector, info provider.CustomMetricInfo, metricSelector labels.Selector) (*custom_metrics.MetricValueList, error) {
	return c.read(ctx, namespace, "*", info, selector, metricSelector)
}

func (c Custom) read(ctx context.Context, namespace, name string, info provider.CustomMetricInfo, selector, metricSelector labels.Selector) (*custom_metrics.MetricValueList, error) {
	version := customv1beta2.SchemeGroupVersion
	var list any = &customv1beta2.MetricValueList{}
	if c.currentMetrics().oldCustom {
		version = customv1beta1.SchemeGroupVersion
		list = &customv1beta1.MetricValueList{}
	}

	path := apiPath(version)
	switch {
	case info.GroupResource.Resource == "namespaces" && namespace == "":
		// Metrics of namespaces have another path than those of other objects.
		path += "/namespaces/" + url.PathEscape(name) + "/metrics/" + url.PathEscape(info.Metric)
	default:
		if namespace != "" {
			path += "/namespaces/" + url.PathEscape(namespace)
		}
		path += "/" + url.PathEscape(info.GroupResource.String()) + "/" + url.PathEscape(name) + "/" + url.PathEscape(info.Metric)
	}

	query := withSelector(withSelector(nil, "labelSelector", selector), "metricLabelSelector", metricSelector)
	if err := c.client.get(ctx, path, query, list); err != nil {
		return nil, err
	}

	out := &custom_metrics.MetricValueList{}
	if err := apiserver.Scheme.Convert(list, out, nil); err != nil {
		return nil, status.Unavailable("remote adapter: %v", err)
	}

	return out, nil
}

// withSelector adds a selector that is not empty to a query.
func withSelector(query url.Values, name string, selector labels.Selector) url.Values {
	if selector == nil || selector.Empty() {
		return query
	}

	if query == nil {
		query = url.Values{}
	}

	query.Set(name, selector.String())
	return query
}
