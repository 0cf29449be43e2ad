// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/utils/clock"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/metricadapter/refreshloop"
	"crane.io/crane/internal/metricadapter/status"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
)

const (
	// namesPerQuery bounds the object names in one query, maxObjects those in one response.
	namesPerQuery = 500
	maxObjects    = 5000
)

// Custom serves the custom metrics of a Provider.
type Custom struct{ *Provider }

var _ provider.CustomMetricsProvider = Custom{}

// Serves reports whether a rule defines a custom metric.
func (c Custom) Serves(metric string) bool {
	rules, series := c.current()
	return rules.HasCustom(series, metric)
}

// ListAllMetrics implements provider.CustomMetricsProvider.
func (c Custom) ListAllMetrics() []provider.CustomMetricInfo {
	rules, series := c.current()
	if series == nil {
		return nil
	}

	var all []provider.CustomMetricInfo
	for _, k := range series.Custom(rules) {
		for _, name := range k.Resources {
			if r, err := c.Resources.lookup(name); err == nil {
				all = append(all, provider.CustomMetricInfo{GroupResource: r.groupResource, Namespaced: r.namespaced, Metric: k.Metric})
			}
		}
	}

	return all
}

// GetMetricByName implements provider.CustomMetricsProvider.
func (c Custom) GetMetricByName(ctx context.Context, name types.NamespacedName, info provider.CustomMetricInfo, selector labels.Selector) (*custom_metrics.MetricValue, error) {
	list, err := c.read(ctx, name.Namespace, []string{name.Name}, info, selector)
	if err != nil {
		return nil, err
	}

	return &list.Items[0], nil
}

// GetMetricBySelector implements provider.CustomMetricsProvider. Objects whose value is missing or no number are omitted: an HPA
// accounts for pods without a value.
func (c Custom) GetMetricBySelector(ctx context.Context, namespace string, selector labels.Selector, info provider.CustomMetricInfo, metricSelector labels.Selector) (*custom_metrics.MetricValueList, error) {
	r, err := c.Resources.lookup(info.GroupResource)
	if err != nil {
		return nil, err
	}

	names, err := c.Objects.listNames(ctx, r, namespace, selector)
	switch {
	case err != nil:
		return nil, err
	case len(names) == 0:
		return nil, status.NotFound("%s: no %s of namespace %q match %q", info.Metric, info.GroupResource.String(), namespace, selector)
	case len(names) > maxObjects:
		return nil, status.Unprocessable("%s: %d %s match %q, more than %d", info.Metric, len(names), info.GroupResource.String(), selector, maxObjects)
	}

	return c.read(ctx, namespace, names, info, metricSelector)
}

// read returns the values of objects, at least one.
func (c Custom) read(ctx context.Context, namespace string, names []string, info provider.CustomMetricInfo, selector labels.Selector) (*custom_metrics.MetricValueList, error) {
	r, err := c.Resources.lookup(info.GroupResource)
	if err != nil {
		return nil, err
	}

	matchers, err := promadapter.SelectorMatchers(selector)
	if err != nil {
		return nil, status.BadRequest("%s: %v", info.Metric, err)
	}

	rules, series := c.current()
	list := &custom_metrics.MetricValueList{}
	bad := 0
	for part := range slices.Chunk(names, namesPerQuery) {
		expr, label, found, err := rules.CustomExpr(series, info.Metric, promadapter.Objects{
			Group:     r.groupResource.Group,
			Resource:  r.singular,
			Plural:    r.groupResource.Resource,
			Resolve:   c.Resources.resolve,
			Namespace: namespace,
			Names:     part,
		}, matchers)

		switch {
		case err != nil:
			return nil, ruleError(info.Metric, err)
		case !found:
			return nil, status.NotFound("%s: no rule defines this metric of %s", info.Metric, info.GroupResource.String())
		}

		samples, err := c.Query(ctx, expr, c.Clock.Now())
		if err != nil {
			return nil, status.Unavailable("%s: %s", info.Metric, metrics.PublicMessage(err))
		}

		values, wrong := samplesByName(samples, label, part)
		bad += wrong

		for _, name := range part {
			if v, ok := values[name]; ok {
				list.Items = append(list.Items, r.metricValue(namespace, name, info.Metric, v))
			}
		}
	}

	// A value that is missing for some objects is missing in the answer: the HPA decides what that means.
	switch {
	case len(list.Items) > 0:
		return list, nil
	case bad > 0:
		return nil, status.Unavailable("%s: none of %d values is a number", info.Metric, bad)
	}

	return nil, status.NotFound("%s: no series for %d %s of namespace %q", info.Metric, len(names), info.GroupResource.String(), namespace)
}

// samplesByName returns the sample of each object. Several samples of one object are added up; a rule without aggregation returns
// them.
func samplesByName(samples []metrics.Sample, label string, names []string) (found map[string]metrics.Sample, bad int) {
	found = make(map[string]metrics.Sample, len(samples))
	broken := map[string]bool{}
	for _, s := range samples {
		name := s.Labels[label]
		if !slices.Contains(names, name) {
			continue
		}

		if _, ok := quantity(s.Value); !ok {
			broken[name] = true
			continue
		}

		if previous, twice := found[name]; twice {
			s.Value += previous.Value
		}
		found[name] = s
	}

	for name := range broken {
		delete(found, name)
	}

	return found, len(broken)
}

// metricValue converts a sample to a value of the API.
func (r resourceInfo) metricValue(namespace, name, metric string, s metrics.Sample) custom_metrics.MetricValue {
	q, _ := quantity(s.Value)
	return custom_metrics.MetricValue{
		DescribedObject: custom_metrics.ObjectReference{
			APIVersion: r.kind.GroupVersion().String(),
			Kind:       r.kind.Kind,
			Namespace:  namespace,
			Name:       name,
		},
		Metric:    custom_metrics.MetricIdentifier{Name: metric},
		Timestamp: metav1.NewTime(s.Time),
		Value:     q,
	}
}

// Resources lists the resources of the cluster at an interval, so that a request for a metric needs no discovery.
type Resources struct {
	Discovery discovery.DiscoveryInterface
	// Interval is the time between two discoveries.
	Interval time.Duration
	Clock    clock.WithTicker

	current atomic.Pointer[discovered]
}

// discovered are the resources of one discovery.
type discovered struct {
	mapper meta.RESTMapper
	// found has what was looked up, by lower-case name: rules name a few resources, and each request looks all of them up.
	found sync.Map // resourceInfo by schema.GroupResource
}

// resourceInfo describes a resource of the cluster.
type resourceInfo struct {
	groupResource schema.GroupResource
	version       string
	singular      string
	kind          schema.GroupVersionKind
	namespaced    bool
}

func (r resourceInfo) gvr() schema.GroupVersionResource {
	return r.groupResource.WithVersion(r.version)
}

// Run repeats the discovery until ctx ends. After a failure the previous resources stay.
func (r *Resources) Run(ctx context.Context) error {
	return refreshloop.Run(ctx, "resources", r.Clock, r.Interval, nil, func(context.Context) error {
		groups, err := restmapper.GetAPIGroupResources(r.Discovery)
		if err == nil {
			r.current.Store(&discovered{mapper: restmapper.NewDiscoveryRESTMapper(groups)})
		}

		return err
	})
}

// lookup returns a resource by its plural or singular name, with or without a group.
func (r *Resources) lookup(name schema.GroupResource) (resourceInfo, error) {
	current := r.current.Load()
	if current == nil {
		return resourceInfo{}, status.Unavailable("%s: the resources of the cluster are not known yet", name.String())
	}

	// The mapper ignores the case of names, which requests choose: each spelling would stay in memory.
	name.Resource = strings.ToLower(name.Resource)
	if cached, ok := current.found.Load(name); ok {
		if info, ok := cached.(resourceInfo); ok {
			return info, nil
		}
	}

	found, err := describeForRequest(current.mapper, name)
	// Nor are names kept that the cluster does not have, or groups of which the mapper accepts the begin.
	if err == nil && (name.Group == "" || name.Group == found.groupResource.Group) {
		current.found.Store(name, found)
	}

	return found, err
}

// describeForRequest is describeResource with the status of a request.
func describeForRequest(mapper meta.RESTMapper, name schema.GroupResource) (resourceInfo, error) {
	found, err := describeResource(mapper, name)
	if meta.IsNoMatchError(err) {
		return resourceInfo{}, status.NotFound("%s: the cluster has no such resource", name.String())
	}
	if err != nil {
		return resourceInfo{}, status.BadRequest("%s: %v", name.String(), err)
	}

	return found, nil
}

// resolve returns the resource that an override names.
func (r *Resources) resolve(group, name string) (schema.GroupResource, error) {
	found, err := r.lookup(schema.GroupResource{Group: group, Resource: name})
	return found.groupResource, err
}

func describeResource(mapper meta.RESTMapper, name schema.GroupResource) (resourceInfo, error) {
	gvr, err := mapper.ResourceFor(name.WithVersion(""))
	if err != nil {
		return resourceInfo{}, err
	}

	kind, err := mapper.KindFor(gvr)
	if err != nil {
		return resourceInfo{}, err
	}

	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return resourceInfo{}, err
	}

	singular, err := mapper.ResourceSingularizer(gvr.Resource)
	if err != nil {
		return resourceInfo{}, fmt.Errorf("singular of %s: %w", gvr.Resource, err)
	}

	return resourceInfo{
		groupResource: gvr.GroupResource(),
		version:       gvr.Version,
		singular:      singular,
		kind:          kind,
		namespaced:    mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}, nil
}
