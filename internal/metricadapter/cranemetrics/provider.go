// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cranemetrics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/metricadapter/status"
)

// Provider implements provider.ExternalMetricsProvider for Crane's own metrics.
type Provider struct {
	// Reader is a cache with the indexes of AddIndexes.
	Reader client.Reader
	// CheckSynced returns an error while the cache is not synced.
	CheckSynced func() error
	// Zones are the time zones of cron schedules.
	Zones *scalingmetric.Zones
	Clock clock.PassiveClock
}

var _ provider.ExternalMetricsProvider = (*Provider)(nil)

// Serves reports whether a metric is one of Crane's.
func (p *Provider) Serves(metric string) bool {
	return metric == autoscalingv1alpha1.MetricPrediction || metric == autoscalingv1alpha1.MetricCron
}

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (p *Provider) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	return []provider.ExternalMetricInfo{{Metric: autoscalingv1alpha1.MetricCron}, {Metric: autoscalingv1alpha1.MetricPrediction}}
}

// GetExternalMetric implements provider.ExternalMetricsProvider. It returns exactly one value. Without a usable value, or with a
// selector that could match several, it returns an error, and the HPA keeps its replicas.
func (p *Provider) GetExternalMetric(ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo) (*external_metrics.ExternalMetricValueList, error) {
	key, err := scalingmetric.ParseKey(selector)
	if err != nil {
		return nil, status.BadRequest("%s: %v", info.Metric, err)
	}

	// Authorization covers only the namespace of the request.
	if key.TargetNamespace != namespace {
		return nil, status.BadRequest("%s: targetNamespace is %q in a request for namespace %q", info.Metric, key.TargetNamespace, namespace)
	}

	if err := p.CheckSynced(); err != nil {
		return nil, status.Unavailable("%s: %v", info.Metric, err)
	}

	value := external_metrics.ExternalMetricValue{MetricName: info.Metric, MetricLabels: key.MatchLabels()}
	if info.Metric == autoscalingv1alpha1.MetricCron {
		err = p.cron(ctx, key, &value)
	} else {
		err = p.prediction(ctx, key, &value)
	}

	if err != nil {
		return nil, err
	}

	return &external_metrics.ExternalMetricValueList{Items: []external_metrics.ExternalMetricValue{value}}, nil
}

func (p *Provider) prediction(ctx context.Context, key scalingmetric.Key, value *external_metrics.ExternalMetricValue) error {
	var list predictionv1alpha1.TimeSeriesPredictionList
	if err := p.listForTarget(ctx, key, &list); err != nil {
		return err
	}

	found := slices.DeleteFunc(list.Items, func(tsp predictionv1alpha1.TimeSeriesPrediction) bool {
		return !key.SelectsPrediction(&tsp) || !predictsMetric(&tsp, key.Identifier)
	})

	tsp, err := singleObject(value.MetricName, "TimeSeriesPrediction", key, found, func(tsp *predictionv1alpha1.TimeSeriesPrediction) string { return tsp.Name })
	if err != nil {
		return err
	}

	// An HPA that gets an error keeps its replicas; an old forecast would scale by what is no longer expected.
	forecast, err := scalingmetric.ActionableForecast(tsp, key.Identifier, p.Clock.Now())
	if err != nil {
		message := fmt.Sprintf("%s of %s: TimeSeriesPrediction %s/%s has no forecast to act on: %v", value.MetricName, key.Identifier, tsp.Namespace, tsp.Name, err)
		if errors.Is(err, scalingmetric.ErrSeveralSeries) {
			return status.Unprocessable("%s", message)
		}

		return status.Unavailable("%s", message)
	}

	window := int64(forecast.Window.Seconds())
	value.Value = scalingmetric.NewQuantity(forecast.Value)
	value.Timestamp = metav1.NewTime(forecast.CreatedAt)
	value.WindowSeconds = &window

	return nil
}

// predictsMetric reports whether a prediction includes a metric.
func predictsMetric(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) bool {
	return scalingmetric.MetricSpec(tsp, identifier) != nil
}

func (p *Provider) cron(ctx context.Context, key scalingmetric.Key, value *external_metrics.ExternalMetricValue) error {
	var list autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
	if err := p.listForTarget(ctx, key, &list); err != nil {
		return err
	}

	found := slices.DeleteFunc(list.Items, func(ehpa autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) bool {
		return !key.SelectsAutoscaler(&ehpa) || len(ehpa.Spec.Crons) == 0
	})

	ehpa, err := singleObject(value.MetricName, "EffectiveHorizontalPodAutoscaler with crons", key, found,
		func(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) string { return ehpa.Name })
	if err != nil {
		return err
	}

	now := p.Clock.Now()
	value.Value = *resource.NewQuantity(int64(scalingmetric.CronReplicas(ehpa, p.Zones, now)), resource.DecimalSI)
	value.Timestamp = metav1.NewTime(now)

	return nil
}

// listForTarget lists the objects of a target without copying them from the cache.
func (p *Provider) listForTarget(ctx context.Context, key scalingmetric.Key, list client.ObjectList) error {
	err := p.Reader.List(ctx, list, client.InNamespace(key.TargetNamespace),
		client.MatchingFields{TargetIndex: targetIndexValue(key.TargetKind, key.TargetName)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return status.Unavailable("looking for %s %s/%s: %v", key.TargetKind, key.TargetNamespace, key.TargetName, err)
	}

	return nil
}

// singleObject returns the only object that matches a key.
func singleObject[T any](metric, kind string, key scalingmetric.Key, found []T, name func(*T) string) (*T, error) {
	what := fmt.Sprintf("%s of %s for %s %s/%s", metric, key.Identifier, key.TargetKind, key.TargetNamespace, key.TargetName)
	switch len(found) {
	case 1:
		return &found[0], nil
	case 0:
		return nil, status.NotFound("%s: there is no %s", what, kind)
	}

	const maxNames = 3
	names := make([]string, 0, maxNames+1)
	for i := range found[:min(maxNames, len(found))] {
		names = append(names, name(&found[i]))
	}

	if len(found) > maxNames {
		names = append(names, "...")
	}

	return nil, status.Unprocessable("%s: there are %d (%s), and exactly one is required: several autoscalers have the same target",
		what, len(found), strings.Join(names, ", "))
}

// TargetIndex indexes predictions and autoscalers by kind and name of their target.
const TargetIndex = "crane.io/scale-target"

// AddIndexes adds the field indexes of the provider. The cache must not have started.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, o := range []client.Object{&predictionv1alpha1.TimeSeriesPrediction{}, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}} {
		if err := indexer.IndexField(ctx, o, TargetIndex, TargetIndexValues); err != nil {
			return fmt.Errorf("indexing %T by target: %w", o, err)
		}
	}

	return nil
}

// TargetIndexValues returns the values of TargetIndex for an object.
func TargetIndexValues(o client.Object) []string {
	switch o := o.(type) {
	case *predictionv1alpha1.TimeSeriesPrediction:
		if ref := o.Spec.TargetRef; ref != nil {
			return []string{targetIndexValue(ref.Kind, ref.Name)}
		}
	case *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler:
		return []string{targetIndexValue(o.Spec.ScaleTargetRef.Kind, o.Spec.ScaleTargetRef.Name)}
	}

	return nil
}

// targetIndexValue has the name as the selector of an HPA has it: a name may be too long for a label.
func targetIndexValue(kind, name string) string { return kind + "/" + scalingmetric.LabelValue(name) }

// TrimObject removes what no metric is computed from before an object is cached: managed fields, annotations and the state of
// ledgers. The sample values of a forecast share one string, because hundreds of strings for each forecast would keep the garbage
// collector busy.
func TrimObject(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil
	}

	o.SetManagedFields(nil)
	o.SetAnnotations(nil)

	if tsp, ok := object.(*predictionv1alpha1.TimeSeriesPrediction); ok {
		for i := range tsp.Status.PredictionMetrics {
			m := &tsp.Status.PredictionMetrics[i]
			if m.Scaling != nil {
				m.Scaling.Ledger = ""
			}

			for n := range m.Prediction {
				shareSampleMemory(m.Prediction[n].Samples)
			}
		}
	}

	return object, nil
}

// shareSampleMemory makes the values of samples substrings of one string.
func shareSampleMemory(samples []predictionv1alpha1.Sample) {
	size := 0
	for i := range samples {
		size += len(samples[i].Value)
	}

	var all strings.Builder
	all.Grow(size)

	for i := range samples {
		all.WriteString(samples[i].Value)
	}

	text := all.String()
	for i := range samples {
		n := len(samples[i].Value)
		samples[i].Value = text[:n]
		text = text[n:]
	}
}
