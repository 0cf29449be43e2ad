// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/pkg/scaling"
)

// MetricsClient reads the three metrics APIs through the API server, as the HPA controller does.
type MetricsClient struct {
	REST   rest.Interface
	Pods   client.Reader
	Mapper meta.RESTMapper
}

// NewPreviewCalculator builds what computes previews on a manager.
func NewPreviewCalculator(mgr manager.Manager) (*PreviewCalculator, error) {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("building the client of the metrics APIs: %w", err)
	}
	return &PreviewCalculator{Metrics: &MetricsClient{REST: disco.RESTClient(), Pods: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper()}}, nil
}

// Read implements Values.
func (a *MetricsClient) Read(ctx context.Context, namespace, selector string, m *autoscalingv2.MetricSpec, now time.Time) (MetricValue, error) {
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		return a.resource(ctx, namespace, selector, podSampler{resource: m.Resource.Name, now: now})
	case autoscalingv2.ContainerResourceMetricSourceType:
		return a.resource(ctx, namespace, selector, podSampler{resource: m.ContainerResource.Name, container: m.ContainerResource.Container, now: now})
	case autoscalingv2.PodsMetricSourceType:
		return a.perPod(ctx, namespace, selector, m.Pods.Metric)
	case autoscalingv2.ObjectMetricSourceType:
		return a.object(ctx, namespace, selector, m.Object)
	case autoscalingv2.ExternalMetricSourceType:
		return a.external(ctx, namespace, selector, m.External.Metric)
	}
	return MetricValue{}, fmt.Errorf("metric type %q: %w", m.Type, scaling.ErrNoMetric)
}

// get asks for a path and decodes the answer. What is not there is no metric to decide by.
func (a *MetricsClient) get(ctx context.Context, at string, params map[string]string, into any) error {
	req := a.REST.Get().AbsPath(at)
	for k, v := range params {
		if v != "" {
			req = req.Param(k, v)
		}
	}
	data, err := req.SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("%w: %w", scaling.ErrNoMetric, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: the answer of %s: %w", scaling.ErrNoMetric, at, err)
	}
	return nil
}

func (a *MetricsClient) listPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	parsed, err := labels.Parse(selector)
	if err != nil || parsed.Empty() {
		return nil, fmt.Errorf("the target's scale selects no pods (%q): %w", selector, scaling.ErrNoMetric)
	}
	var list corev1.PodList
	if err := a.Pods.List(ctx, &list, &client.ListOptions{Namespace: namespace, LabelSelector: parsed}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list.Items, nil
}

func (a *MetricsClient) resource(ctx context.Context, namespace, selector string, s podSampler) (MetricValue, error) {
	pods, err := a.listPods(ctx, namespace, selector)
	if err != nil {
		return MetricValue{}, err
	}
	var list metricsv1beta1.PodMetricsList
	at := path.Join("/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods")
	if err := a.get(ctx, at, map[string]string{"labelSelector": selector}, &list); err != nil {
		return MetricValue{}, err
	}
	byName := make(map[string]*metricsv1beta1.PodMetrics, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	var out MetricValue
	for i := range pods {
		if pod, ok := s.sample(&pods[i], byName[pods[i].Name]); ok {
			out.Pods = append(out.Pods, pod)
		}
	}
	return out, nil
}

// metricValues is a list of custom or external metrics, of any version.
type metricValues struct {
	Items []struct {
		DescribedObject corev1.ObjectReference `json:"describedObject"`
		Value           resource.Quantity      `json:"value"`
	} `json:"items"`
}

func (v metricValues) sum() float64 {
	sum := 0.0
	for i := range v.Items {
		sum += v.Items[i].Value.AsApproximateFloat64()
	}
	return sum
}

// custom asks custom.metrics.k8s.io in the newer version, or else the older one.
func (a *MetricsClient) custom(ctx context.Context, of string, params map[string]string) (metricValues, error) {
	var out metricValues
	err := a.get(ctx, path.Join("/apis/custom.metrics.k8s.io/v1beta2/namespaces", of), params, &out)
	if apierrors.IsNotFound(err) {
		err = a.get(ctx, path.Join("/apis/custom.metrics.k8s.io/v1beta1/namespaces", of), params, &out)
	}
	if err == nil && len(out.Items) == 0 {
		err = fmt.Errorf("no value of %s: %w", of, scaling.ErrNoMetric)
	}
	return out, err
}

func (a *MetricsClient) perPod(ctx context.Context, namespace, selector string, m autoscalingv2.MetricIdentifier) (MetricValue, error) {
	pods, err := a.listPods(ctx, namespace, selector)
	if err != nil {
		return MetricValue{}, err
	}
	values, err := a.custom(ctx, path.Join(namespace, "pods", "*", m.Name), map[string]string{
		"labelSelector": selector, "metricLabelSelector": formatSelector(m.Selector),
	})
	if err != nil {
		return MetricValue{}, err
	}
	byName := map[string]float64{}
	for i := range values.Items {
		byName[values.Items[i].DescribedObject.Name] = values.Items[i].Value.AsApproximateFloat64()
	}
	var out MetricValue
	for i := range pods {
		if !isCounted(&pods[i]) {
			continue
		}
		use, found := byName[pods[i].Name]
		one := scaling.Pod{Usage: use, Request: 1}
		switch {
		case pods[i].Status.Phase == corev1.PodPending:
			one.State = scaling.Unready
		case !found:
			one.State = scaling.Missing
		}
		out.Pods = append(out.Pods, one)
	}
	return out, nil
}

func (a *MetricsClient) object(ctx context.Context, namespace, selector string, m *autoscalingv2.ObjectMetricSource) (MetricValue, error) {
	gv, err := schema.ParseGroupVersion(m.DescribedObject.APIVersion)
	if err != nil {
		return MetricValue{}, fmt.Errorf("describedObject.apiVersion: %w", err)
	}
	mapping, err := a.Mapper.RESTMapping(gv.WithKind(m.DescribedObject.Kind).GroupKind(), gv.Version)
	if err != nil {
		return MetricValue{}, fmt.Errorf("describedObject: %w", err)
	}
	values, err := a.custom(ctx, path.Join(namespace, mapping.Resource.GroupResource().String(), m.DescribedObject.Name, m.Metric.Name),
		map[string]string{"metricLabelSelector": formatSelector(m.Metric.Selector)})
	if err != nil {
		return MetricValue{}, err
	}
	return a.sumWithReadyPods(ctx, namespace, selector, values.sum())
}

func (a *MetricsClient) external(ctx context.Context, namespace, selector string, m autoscalingv2.MetricIdentifier) (MetricValue, error) {
	var values metricValues
	at := path.Join("/apis/external.metrics.k8s.io/v1beta1/namespaces", namespace, m.Name)
	if err := a.get(ctx, at, map[string]string{"labelSelector": formatSelector(m.Selector)}, &values); err != nil {
		return MetricValue{}, err
	}
	if len(values.Items) == 0 {
		return MetricValue{}, fmt.Errorf("no value of %s: %w", m.Name, scaling.ErrNoMetric)
	}
	return a.sumWithReadyPods(ctx, namespace, selector, values.sum())
}

// sumWithReadyPods counts ready pods for targets that are about all of them.
func (a *MetricsClient) sumWithReadyPods(ctx context.Context, namespace, selector string, sum float64) (MetricValue, error) {
	pods, err := a.listPods(ctx, namespace, selector)
	if err != nil {
		return MetricValue{}, err
	}
	out := MetricValue{Sum: sum}
	for i := range pods {
		if ready := readyCondition(&pods[i]); isCounted(&pods[i]) && ready != nil && ready.Status == corev1.ConditionTrue {
			out.Ready++
		}
	}
	return out, nil
}

// formatSelector writes a selector for a request; empty for none.
func formatSelector(s *metav1.LabelSelector) string {
	if s == nil {
		return ""
	}
	return metav1.FormatLabelSelector(s)
}
