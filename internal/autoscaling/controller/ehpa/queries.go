// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// QueryBuilder determines the query for the history of a metric: from the annotation of the user, from a rule of prometheus-adapter's
// configuration, or a default.
type QueryBuilder struct {
	// Selector returns a PromQL selector with the matchers of the configuration added.
	Selector func(metric string, matchers ...prometheus.Matcher) (string, error)
	// Pods returns matchers that select the pods of a workload by name.
	Pods func(namespace, kind, name string) []prometheus.Matcher
	// Rules returns the rules of prometheus-adapter's configuration.
	Rules func() ListedRules
	// NoPromQL is the reason why no source answers PromQL; nil where one does.
	NoPromQL error
}

// ListedRules are the rules of prometheus-adapter's configuration and the series that they find.
type ListedRules struct {
	// Rules is nil where none are configured, and until they have been read.
	Rules *promadapter.Rules
	// Series is nil until the series have been listed.
	Series *promadapter.Listing
	// Pending is true until configured rules have been read and their series listed.
	Pending bool
	// Problem is why the configuration, or a part of it, is not in force; nil if it is.
	Problem error
}

// historyQuery is the query for the history of a metric.
type historyQuery struct {
	predictionv1alpha1.PredictionMetric
	// rule describes the rule that defines the query, empty for none.
	rule string
}

// errNoSeries means that a rule may define a metric, and there are no series of it.
var errNoSeries = errors.New("no rule of prometheus-adapter's configuration finds series of it")

// build returns the query of a metric without resourceIdentifier and algorithm. A query in PromQL is an error where no source answers it.
func (q *QueryBuilder) build(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, m *autoscalingv2.MetricSpec, identifier string) (historyQuery, error) {
	query, err := q.findQuery(ehpa, m, identifier)
	needsPromQL := err == nil && query.ExpressionQuery != nil || errors.Is(err, metrics.ErrUnsupported) || errors.Is(err, promadapter.ErrNotListed)
	if q.NoPromQL != nil && needsPromQL {
		return historyQuery{}, q.NoPromQL
	}

	return query, err
}

func (q *QueryBuilder) findQuery(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, m *autoscalingv2.MetricSpec, identifier string) (historyQuery, error) {
	if m.Type == autoscalingv2.ObjectMetricSourceType {
		return historyQuery{}, errObjectMetric
	}

	if text := strings.TrimSpace(ehpa.Annotations[scalingmetric.QueryAnnotation(identifier)]); text != "" {
		return historyQuery{PredictionMetric: expressionQuery(text)}, nil
	}

	ref := qualifiedRef(ehpa.Spec.ScaleTargetRef)
	pods := q.Pods(ehpa.Namespace, ref.Kind, ref.Name)
	if listed := q.Rules(); listed.Rules != nil {
		total, found, err := ruleQuery(listed, m, ehpa.Namespace, pods)
		if err != nil {
			return historyQuery{}, fmt.Errorf("%s of prometheus-adapter's configuration: %w", cmp.Or(total.Rule, "a rule"), err)
		}

		if found {
			return historyQuery{expressionQuery(total.Expr), describeRule(total)}, nil
		}
	}

	query, err := q.defaultQuery(m, identifier, pods)
	return historyQuery{PredictionMetric: query}, err
}

func describeRule(total promadapter.Total) string {
	if total.Series == "" {
		return total.Rule
	}

	return total.Rule + " with the series " + total.Series
}

func expressionQuery(text string) predictionv1alpha1.PredictionMetric {
	return predictionv1alpha1.PredictionMetric{
		Type: predictionv1alpha1.ExpressionQueryMetricType, ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: text},
	}
}

// ruleQuery returns the query that a rule defines; found is false without a rule. The rule is the one by which the metric adapter serves the
// metric, so that a forecast is of what the HPA reads.
func ruleQuery(listed ListedRules, m *autoscalingv2.MetricSpec, namespace string, pods []prometheus.Matcher) (promadapter.Total, bool, error) {
	rules := listed.Rules
	query := promadapter.MetricQuery{Namespace: namespace, Matchers: pods}
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		return rules.ResourceSum(string(m.Resource.Name), query)
	case autoscalingv2.ContainerResourceMetricSourceType:
		query.Container = m.ContainerResource.Container
		return rules.ResourceSum(string(m.ContainerResource.Name), query)

	case autoscalingv2.PodsMetricSourceType:
		selector, err := selectorMatchers(m.Pods.Metric.Selector)
		if err != nil {
			return promadapter.Total{}, false, err
		}

		query.Selector = selector
		total, found, err := rules.CustomSum(listed.Series, m.Pods.Metric.Name, query)
		if !found && rules.HasCustom(nil, m.Pods.Metric.Name) {
			err = errNoSeries
		}

		return total, found, err

	case autoscalingv2.ExternalMetricSourceType:
		selector, err := selectorMatchers(m.External.Metric.Selector)
		if err != nil {
			return promadapter.Total{}, false, err
		}

		query = promadapter.MetricQuery{Namespace: namespace, Selector: selector}
		total, found, err := rules.ExternalSum(listed.Series, m.External.Metric.Name, query)
		if !found && rules.HasExternal(nil, m.External.Metric.Name) {
			err = errNoSeries
		}

		return total, found, err
	}

	return promadapter.Total{}, false, nil
}

// defaultQuery returns the usage of the workload for a resource, and the sum of the series for any other metric.
func (q *QueryBuilder) defaultQuery(
	m *autoscalingv2.MetricSpec, identifier string, pods []prometheus.Matcher,
) (predictionv1alpha1.PredictionMetric, error) {
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		name := m.Resource.Name
		if err := checkResource(name, identifier); err != nil {
			return predictionv1alpha1.PredictionMetric{}, err
		}

		return predictionv1alpha1.PredictionMetric{Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: &name}, nil

	case autoscalingv2.ContainerResourceMetricSourceType:
		return q.containerQuery(m.ContainerResource, identifier, pods)
	case autoscalingv2.PodsMetricSourceType:
		return q.sumQuery(m.Pods.Metric, pods)
	case autoscalingv2.ExternalMetricSourceType:
		return q.sumQuery(m.External.Metric, nil)
	}

	return predictionv1alpha1.PredictionMetric{}, fmt.Errorf("metrics of type %s are not forecast", m.Type)
}

func checkResource(name corev1.ResourceName, identifier string) error {
	if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
		return nil
	}

	return fmt.Errorf("the usage of %s is not known: set its query in the annotation %s",
		name, scalingmetric.QueryAnnotation(identifier))
}

// containerQuery returns the usage of one container summed over the pods. A container that two jobs scrape counts once.
func (q *QueryBuilder) containerQuery(
	m *autoscalingv2.ContainerResourceMetricSource, identifier string, pods []prometheus.Matcher,
) (predictionv1alpha1.PredictionMetric, error) {
	if err := checkResource(m.Name, identifier); err != nil {
		return predictionv1alpha1.PredictionMetric{}, err
	}

	pods = append(slices.Clone(pods), prometheus.Matcher{Label: "container", Op: "=", Value: m.Container})
	metric, format := "container_memory_working_set_bytes", "sum(max by (namespace, pod, container) (%s))"
	if m.Name == corev1.ResourceCPU {
		metric, format = "container_cpu_usage_seconds_total", "sum(max by (namespace, pod, container) (sum without (cpu) (rate(%s[5m]))))"
	}

	text, err := q.Selector(metric, pods...)
	if err != nil {
		return predictionv1alpha1.PredictionMetric{}, fmt.Errorf("container %s: %w", m.Container, err)
	}

	return expressionQuery(fmt.Sprintf(format, text)), nil
}

// sumQuery returns the sum of all series of a metric.
func (q *QueryBuilder) sumQuery(m autoscalingv2.MetricIdentifier, pods []prometheus.Matcher) (predictionv1alpha1.PredictionMetric, error) {
	more, err := selectorMatchers(m.Selector)
	if err != nil {
		return predictionv1alpha1.PredictionMetric{}, err
	}

	text, err := q.Selector(m.Name, slices.Concat(pods, more)...)
	if err != nil {
		return predictionv1alpha1.PredictionMetric{}, fmt.Errorf("metric %s: %w", m.Name, err)
	}

	return expressionQuery("sum(" + text + ")"), nil
}

// selectorMatchers returns a label selector as PromQL matchers. It refuses keys and values that the API server refuses in a selector.
func selectorMatchers(selector *metav1.LabelSelector) ([]prometheus.Matcher, error) {
	if selector == nil {
		return nil, nil
	}

	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}

	return promadapter.SelectorMatchers(parsed)
}
