// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/workload"
)

// forecastCandidate is a metric that a forecast is wanted of: either it takes part, or err says why not.
type forecastCandidate struct {
	predictedMetric
	// query is what is forecast; nil where the metric cannot be.
	query *predictionv1alpha1.PredictionMetric
	// forecast is the value as of now; zero where err is set.
	forecast scalingmetric.Forecast
	err      error
}

// predictionEnabled tells whether forecasts were asked for: as in gocrane both prediction and its algorithm have to be there.
func predictionEnabled(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) bool {
	return ehpa.Spec.Prediction != nil && ehpa.Spec.Prediction.PredictionAlgorithm != nil
}

// errObjectMetric says why a metric of an object is not forecast.
var errObjectMetric = errors.New("metrics of objects are not forecast")

// forecastCandidates lists the metrics that a forecast is wanted of, in the order of the spec.
func forecastCandidates(o *observation, queries *QueryBuilder) []forecastCandidate {
	if !predictionEnabled(o.ehpa) {
		return nil
	}
	metrics := metricSpecs(o.ehpa)
	names := resourceIdentifiers(metrics)
	out := make([]forecastCandidate, len(metrics))
	for i := range metrics {
		c := &out[i]
		c.identifier = names[i]
		query, err := queries.build(o.ehpa, &metrics[i], names[i])
		if _, known := queries.Rules(); !known {
			// craned has just started. What the rules once said stays: another query would begin without a past.
			query, err = previousQuery(o.tsp, names[i], query, err)
		}
		if err != nil {
			c.err = err
			continue
		}
		query.ResourceIdentifier = names[i]
		query.Algorithm = predictionAlgorithm(o.ehpa.Spec.Prediction.PredictionAlgorithm)
		c.query = &query
		c.evaluate(o, &metrics[i])
	}
	return out
}

// evaluate says what replicas the forecast of a metric is for, and reads it.
func (c *forecastCandidate) evaluate(o *observation, m *autoscalingv2.MetricSpec) {
	// An account is not begun anew for a fault that passes.
	c.query.Scaling = previousPlant(o.tsp, c.identifier)
	if c.perPod, c.err = perPodTarget(o.target, m); c.err != nil {
		return
	}
	plant, err := scalingPlant(o.ehpa, m, c.perPod)
	if err != nil {
		c.err = err
		return
	}
	c.query.Scaling = plant
	if o.tsp == nil {
		c.err = scalingmetric.ErrNotReady
		return
	}
	c.forecast, c.err = scalingmetric.ActionableForecast(o.tsp, c.identifier, o.now)
}

// previousQuery returns the query that a prediction has for a metric, or else the one that is given.
func previousQuery(
	tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string, otherwise predictionv1alpha1.PredictionMetric, err error,
) (predictionv1alpha1.PredictionMetric, error) {
	if tsp != nil {
		for i := range tsp.Spec.PredictionMetrics {
			if m := &tsp.Spec.PredictionMetrics[i]; m.ResourceIdentifier == identifier {
				return *m.DeepCopy(), nil
			}
		}
	}
	return otherwise, err
}

// perPodTarget is what one pod should have of a metric. The error says why the forecast of it says nothing about replicas.
func perPodTarget(t workload.Scale, m *autoscalingv2.MetricSpec) (out resource.Quantity, err error) {
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		return resourcePerPodTarget(t, m.Resource.Name, "", m.Resource.Target)
	case autoscalingv2.ContainerResourceMetricSourceType:
		return resourcePerPodTarget(t, m.ContainerResource.Name, m.ContainerResource.Container, m.ContainerResource.Target)
	case autoscalingv2.PodsMetricSourceType:
		if m.Pods.Target.AverageValue != nil {
			return *m.Pods.Target.AverageValue, nil
		}
	case autoscalingv2.ExternalMetricSourceType:
		if m.External.Target.AverageValue != nil {
			return *m.External.Target.AverageValue, nil
		}
		// A plain value says by how much replicas are to grow, and not to what: a forecast, which does not fall when they
		// do, would make them grow for ever.
		return out, errors.New("a target of type Value cannot be reached by forecast: use averageValue")
	}
	return out, fmt.Errorf("a metric of type %s says nothing of what a pod should have", m.Type)
}

func predictionAlgorithm(a *autoscalingv1alpha1.PredictionAlgorithm) predictionv1alpha1.Algorithm {
	return predictionv1alpha1.Algorithm{AlgorithmType: a.AlgorithmType, DSP: a.DSP.DeepCopy(), Percentile: a.Percentile.DeepCopy()}
}

// desiredPrediction is the TimeSeriesPrediction that there should be; nil where nothing is to be forecast.
func desiredPrediction(o *observation, wanted []forecastCandidate) *predictionv1alpha1.TimeSeriesPrediction {
	var metrics []predictionv1alpha1.PredictionMetric
	for _, c := range wanted {
		if c.query != nil {
			metrics = append(metrics, *c.query)
		}
	}
	if len(metrics) == 0 {
		return nil
	}
	ehpa := o.ehpa
	out := &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}}
	if o.tsp != nil {
		out = o.tsp.DeepCopy()
	}
	ref := qualifiedRef(ehpa.Spec.ScaleTargetRef)
	labels := managedLabels(ehpa, out.Name)
	labels[autoscalingv1alpha1.LabelTargetKind] = labelValue(ref.Kind)
	labels[autoscalingv1alpha1.LabelTargetNamespace] = ehpa.Namespace
	labels[autoscalingv1alpha1.LabelTargetName] = labelValue(ref.Name)
	out.Labels = mergedMetadata(out.Labels, nil, nil, nil, labels)
	out.Spec = predictionv1alpha1.TimeSeriesPredictionSpec{
		TargetRef:               &corev1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: ehpa.Namespace, Name: ref.Name},
		PredictionWindowSeconds: predictionv1alpha1.DefaultPredictionWindowSeconds,
		PredictionMetrics:       metrics,
	}
	if w := ehpa.Spec.Prediction.PredictionWindowSeconds; w != nil {
		out.Spec.PredictionWindowSeconds = *w
	}
	setController(out, ehpa)
	return out
}

// removeAdapterLabels takes the labels off by which the metric adapter finds a prediction: the forecast of an autoscaler that has no HPA is for
// itself, and another one of the same target must not be mistaken for it.
func removeAdapterLabels(tsp *predictionv1alpha1.TimeSeriesPrediction) {
	for _, label := range []string{
		autoscalingv1alpha1.LabelManagedBy, autoscalingv1alpha1.LabelTargetKind,
		autoscalingv1alpha1.LabelTargetNamespace, autoscalingv1alpha1.LabelTargetName,
	} {
		delete(tsp.Labels, label)
	}
}

// usableForecasts are the candidates whose forecast takes part, and when the first of them is out of date.
func usableForecasts(all []forecastCandidate) (out []predictedMetric, until time.Time) {
	for _, c := range all {
		if c.err != nil {
			continue
		}
		out = append(out, c.predictedMetric)
		if until.IsZero() || c.forecast.ExpiresAt.Before(until) {
			until = c.forecast.ExpiresAt
		}
	}
	return out, until
}
