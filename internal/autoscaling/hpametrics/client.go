// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hpametrics reads current metrics through the three metrics APIs of Kubernetes, as the HPA controller does.
package hpametrics

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/pkg/scaling"
)

// maxResponse bounds the response of a metrics API, in bytes. Metrics of 10,000 pods take about 8 MiB.
const maxResponse = 16 << 20

// Client reads metrics through the aggregation layer of the API server.
type Client struct {
	REST   rest.Interface
	Pods   client.Reader
	Mapper meta.RESTMapper
}

// NewClient returns a client with the connection of a manager.
func NewClient(mgr manager.Manager) (*Client, error) {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("building the client of the metrics APIs: %w", err)
	}

	return &Client{REST: disco.RESTClient(), Pods: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper()}, nil
}

// Value is the current value of a metric.
type Value struct {
	// Pods are the samples of a metric that each pod has.
	Pods []scaling.Pod
	// RequestErr is the reason why a utilization of the pods is undefined: one of them has no request. Pods that have ended count too.
	RequestErr error
	// Sum is the value of an Object or External metric in thousandths.
	Sum int64
	// Ready is the number of ready pods, negative where there are no pods.
	Ready int32
}

// Read returns the value of a metric for the pods that selector matches. Errors about missing values wrap scaling.ErrNoMetric.
func (c *Client) Read(ctx context.Context, namespace, selector string, m *autoscalingv2.MetricSpec, now time.Time) (Value, error) {
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		return c.resource(ctx, namespace, selector, podSampler{resource: m.Resource.Name, now: now})
	case autoscalingv2.ContainerResourceMetricSourceType:
		return c.resource(ctx, namespace, selector, podSampler{resource: m.ContainerResource.Name, container: m.ContainerResource.Container, now: now})
	case autoscalingv2.PodsMetricSourceType:
		return c.perPod(ctx, namespace, selector, m.Pods.Metric)
	case autoscalingv2.ObjectMetricSourceType:
		return c.object(ctx, namespace, selector, m.Object)
	case autoscalingv2.ExternalMetricSourceType:
		return c.external(ctx, namespace, selector, m.External)
	}

	return Value{}, fmt.Errorf("metric type %q: %w", m.Type, scaling.ErrNoMetric)
}

// ExternalValues returns the values of an external metric that selector matches; an empty selector matches all.
func (c *Client) ExternalValues(ctx context.Context, namespace, name, selector string) ([]externalv1beta1.ExternalMetricValue, error) {
	var list externalv1beta1.ExternalMetricValueList
	err := c.get(ctx, "/apis/external.metrics.k8s.io/v1beta1/namespaces", []string{namespace, name}, map[string]string{"labelSelector": selector}, &list)
	if err == nil && len(list.Items) == 0 {
		err = fmt.Errorf("%s has no value: %w", name, scaling.ErrNoMetric)
	}

	return list.Items, err
}

// get reads prefix/segments... and decodes the response, at most maxResponse bytes. Segments come from objects that tenants write and
// the request has craned's token, so a segment that is not one path segment is refused. Errors wrap scaling.ErrNoMetric.
func (c *Client) get(ctx context.Context, prefix string, segments []string, params map[string]string, out any) error {
	for _, segment := range segments {
		if segment == "" {
			return fmt.Errorf("%w: a name in the metric is empty", scaling.ErrNoMetric)
		}

		if reasons := content.IsPathSegmentName(segment); len(reasons) > 0 {
			return fmt.Errorf("%w: name %q in the metric: %s", scaling.ErrNoMetric, segment, reasons[0])
		}
	}

	requestPath := path.Join(append([]string{prefix}, segments...)...)
	req := c.REST.Get().AbsPath(requestPath)
	for k, v := range params {
		if v != "" {
			req = req.Param(k, v)
		}
	}

	body, err := req.SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", scaling.ErrNoMetric, err)
	}
	defer func() { _ = body.Close() }()

	// One byte more than is allowed shows that a response is too large.
	data, err := io.ReadAll(io.LimitReader(body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: reading the response of %s: %w", scaling.ErrNoMetric, requestPath, err)
	case len(data) > maxResponse:
		return fmt.Errorf("%w: the response of %s has more than %d MiB", scaling.ErrNoMetric, requestPath, maxResponse>>20)
	}

	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w: decoding the response of %s: %w", scaling.ErrNoMetric, requestPath, err)
	}

	return nil
}

// errNoPods means that a metric of pods has no value because there are none.
var errNoPods = fmt.Errorf("the target has no pods: %w", scaling.ErrNoMetric)

func (c *Client) listPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	parsed, err := labels.Parse(selector)
	if err != nil || parsed.Empty() {
		return nil, fmt.Errorf("the scale of the target has the selector %q, which selects no pods: %w", selector, scaling.ErrNoMetric)
	}

	var list corev1.PodList
	if err := c.Pods.List(ctx, &list, &client.ListOptions{Namespace: namespace, LabelSelector: parsed}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}

	return list.Items, nil
}

func (c *Client) resource(ctx context.Context, namespace, selector string, s podSampler) (Value, error) {
	pods, err := c.listPods(ctx, namespace, selector)
	if err != nil {
		return Value{}, err
	}
	if len(pods) == 0 {
		return Value{}, errNoPods
	}

	var list metricsv1beta1.PodMetricsList
	err = c.get(ctx, "/apis/metrics.k8s.io/v1beta1/namespaces", []string{namespace, "pods"}, map[string]string{"labelSelector": selector}, &list)
	if err != nil {
		return Value{}, err
	}

	byName := make(map[string]*metricsv1beta1.PodMetrics, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}

	var out Value
	for i := range pods {
		pod := &pods[i]
		if sampled, ok := s.sample(pod, byName[pod.Name]); ok {
			out.Pods = append(out.Pods, sampled)
		}

		if _, err := Request(pod, s.resource, s.container); err != nil && out.RequestErr == nil {
			out.RequestErr = fmt.Errorf("pod %s: %w: %w", pod.Name, err, scaling.ErrNoMetric)
		}

		delete(byName, pod.Name)
	}

	for _, sample := range byName {
		if use, ok := s.usage(sample); ok {
			out.Pods = append(out.Pods, scaling.Pod{State: scaling.Unlisted, Usage: use})
		}
	}

	return out, nil
}

// customValues is a list of custom metrics of either version.
type customValues struct {
	Items []struct {
		DescribedObject corev1.ObjectReference `json:"describedObject"`
		Value           resource.Quantity      `json:"value"`
	} `json:"items"`
}

// custom reads custom.metrics.k8s.io/v1beta2, or v1beta1 where the newer version is not served.
func (c *Client) custom(ctx context.Context, object []string, params map[string]string) (customValues, error) {
	var out customValues
	err := c.get(ctx, "/apis/custom.metrics.k8s.io/v1beta2/namespaces", object, params, &out)
	if apierrors.IsNotFound(err) {
		err = c.get(ctx, "/apis/custom.metrics.k8s.io/v1beta1/namespaces", object, params, &out)
	}
	if err == nil && len(out.Items) == 0 {
		err = fmt.Errorf("%s has no value: %w", path.Join(object...), scaling.ErrNoMetric)
	}

	return out, err
}

func (c *Client) perPod(ctx context.Context, namespace, selector string, m autoscalingv2.MetricIdentifier) (Value, error) {
	pods, err := c.listPods(ctx, namespace, selector)
	if err != nil {
		return Value{}, err
	}
	if len(pods) == 0 {
		return Value{}, errNoPods
	}

	metricSelector, err := formatSelector(m.Selector)
	if err != nil {
		return Value{}, err
	}

	values, err := c.custom(ctx, []string{namespace, "pods", "*", m.Name}, map[string]string{
		"labelSelector": selector, "metricLabelSelector": metricSelector,
	})
	if err != nil {
		return Value{}, err
	}

	byName := map[string]int64{}
	for i := range values.Items {
		byName[values.Items[i].DescribedObject.Name] = values.Items[i].Value.MilliValue()
	}

	var out Value
	for i := range pods {
		usage, found := byName[pods[i].Name]
		delete(byName, pods[i].Name)
		if !Counted(&pods[i]) {
			continue
		}

		pod := scaling.Pod{Usage: usage}
		switch {
		case pods[i].Status.Phase == corev1.PodPending:
			pod.State = scaling.Unready
		case !found:
			pod.State = scaling.Missing
		}

		out.Pods = append(out.Pods, pod)
	}

	for _, usage := range byName {
		out.Pods = append(out.Pods, scaling.Pod{State: scaling.Unlisted, Usage: usage})
	}

	return out, nil
}

func (c *Client) object(ctx context.Context, namespace, selector string, m *autoscalingv2.ObjectMetricSource) (Value, error) {
	gv, err := schema.ParseGroupVersion(m.DescribedObject.APIVersion)
	if err != nil {
		return Value{}, fmt.Errorf("describedObject.apiVersion: %w", err)
	}

	mapping, err := c.Mapper.RESTMapping(gv.WithKind(m.DescribedObject.Kind).GroupKind(), gv.Version)
	if err != nil {
		return Value{}, fmt.Errorf("describedObject: %w", err)
	}

	object := []string{namespace, mapping.Resource.GroupResource().String(), m.DescribedObject.Name, m.Metric.Name}
	switch kind := mapping.GroupVersionKind.GroupKind(); {
	case kind == schema.GroupKind{Kind: "Namespace"}:
		// As for the HPA controller, this is the own namespace whatever the name: the reference must not leave it.
		object = []string{namespace, "metrics", m.Metric.Name}
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return Value{}, fmt.Errorf("describedObject: %s belongs to no namespace: %w", kind, scaling.ErrNoMetric)
	}

	metricSelector, err := formatSelector(m.Metric.Selector)
	if err != nil {
		return Value{}, err
	}

	values, err := c.custom(ctx, object, map[string]string{"metricLabelSelector": metricSelector})
	if err != nil {
		return Value{}, err
	}

	var sum int64
	for i := range values.Items {
		sum = addCapped(sum, values.Items[i].Value.MilliValue())
	}

	return c.sumWithReadyPods(ctx, namespace, selector, sum)
}

func (c *Client) external(ctx context.Context, namespace, selector string, m *autoscalingv2.ExternalMetricSource) (Value, error) {
	metricSelector, err := formatSelector(m.Metric.Selector)
	if err != nil {
		return Value{}, err
	}

	values, err := c.ExternalValues(ctx, namespace, m.Metric.Name, metricSelector)
	if err != nil {
		return Value{}, err
	}

	sum := externalSum(values, m.Target.AverageValue != nil)
	return c.sumWithReadyPods(ctx, namespace, selector, sum)
}

// externalSum returns the sum of the values of an external metric in thousandths, the largest number where it overflows. With an average value
// the HPA controller takes a sum below zero for an overflow too, and scales as far up as it may.
func externalSum(values []externalv1beta1.ExternalMetricValue, isAverage bool) int64 {
	var sum int64
	for i := range values {
		sum = addCapped(sum, values[i].Value.MilliValue())
		if sum == math.MaxInt64 || isAverage && sum < 0 {
			return math.MaxInt64
		}
	}

	return sum
}

// addCapped returns a sum, the largest number where it overflows.
func addCapped(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}

	return a + b
}

// sumWithReadyPods adds the number of ready pods, which a target of type Value is multiplied by.
func (c *Client) sumWithReadyPods(ctx context.Context, namespace, selector string, sum int64) (Value, error) {
	pods, err := c.listPods(ctx, namespace, selector)
	if err != nil {
		return Value{}, err
	}

	out := Value{Sum: sum}
	if len(pods) == 0 {
		out.Ready = -1
	}

	for i := range pods {
		ready := readyCondition(&pods[i])
		if pods[i].Status.Phase == corev1.PodRunning && ready != nil && ready.Status == corev1.ConditionTrue {
			out.Ready++
		}
	}

	return out, nil
}

// formatSelector returns a selector as a parameter of a request, empty for nil and for one that selects everything.
func formatSelector(s *metav1.LabelSelector) (string, error) {
	if s == nil {
		return "", nil
	}

	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", fmt.Errorf("the selector of the metric: %w: %w", err, scaling.ErrNoMetric)
	}

	return selector.String(), nil
}
