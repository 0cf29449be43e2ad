// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/internal/metrics/promadapter"
)

// forecastPlan is the part of a plan that concerns forecasts.
type forecastPlan struct {
	// prediction is the desired TimeSeriesPrediction; nil for none.
	prediction *predictionv1alpha1.TimeSeriesPrediction
	candidates []forecastCandidate
	// active are the metrics whose forecasts the HPA gets.
	active []predictedMetric
	// expiresAt is when the first usable forecast expires; zero without one.
	expiresAt time.Time
	ready     *condition.State
	// rulesReady is nil without a configuration of prometheus-adapter.
	rulesReady *condition.State
}

// rulesCondition returns the condition with the rules that are not in force.
func rulesCondition(listed ListedRules) *condition.State {
	var problems []string
	if listed.Problem != nil {
		problems = append(problems, listed.Problem.Error())
	}

	for _, rule := range listed.Rules.Ineffective(listed.Series) {
		if rule.Reason == promadapter.ReasonNotListed {
			problems = append(problems, rule.Rule+": Prometheus refuses its seriesQuery, or it finds too many names")
		}
	}

	out := &condition.State{Type: autoscalingv1alpha1.ConditionMetricRulesReady, OK: true, Reason: autoscalingv1alpha1.ReasonRulesInForce}
	switch {
	case len(problems) > 0:
		out.OK = false
		out.Reason = autoscalingv1alpha1.ReasonRulesRefused
		out.Message = strings.Join(problems, "\n")
	case listed.Rules == nil:
		return nil
	}

	return out
}

// predictedMetric is a metric that can be forecast.
type predictedMetric struct {
	identifier string
	// perPod is the target value of one pod.
	perPod resource.Quantity
}

// forecastCandidate is a metric of an autoscaler with prediction. err is the reason why its forecast is ignored; nil for a usable one.
type forecastCandidate struct {
	predictedMetric
	// query is forecast by the TimeSeriesPrediction; nil where the metric cannot be forecast.
	query *predictionv1alpha1.PredictionMetric
	// rule describes the rule of prometheus-adapter's configuration that defines the query; empty for none.
	rule string
	// forecast is the current value; zero with err.
	forecast scalingmetric.Forecast
	err      error
}

// predictionEnabled reports whether the spec asks for forecasts. Like gocrane it requires prediction and its algorithm.
func predictionEnabled(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) bool {
	return ehpa.Spec.Prediction != nil && ehpa.Spec.Prediction.PredictionAlgorithm != nil
}

// errObjectMetric is the reason why an Object metric has no forecast.
var errObjectMetric = errors.New("metrics of type Object are not forecast")

// planForecasts decides which metrics are forecast and which forecasts the HPA gets.
func planForecasts(o observation, queries *QueryBuilder) forecastPlan {
	if !predictionEnabled(o.ehpa) {
		return forecastPlan{}
	}

	candidates := forecastCandidates(o, queries)
	out := forecastPlan{candidates: candidates, prediction: desiredPrediction(o, candidates), rulesReady: rulesCondition(queries.Rules())}
	var usable []predictedMetric
	var byRule []string

	var ignored []string
	for _, c := range candidates {
		if c.rule != "" {
			byRule = append(byRule, c.identifier+" is defined by "+c.rule)
		}

		if c.err != nil {
			ignored = append(ignored, c.identifier+": "+c.err.Error())
			continue
		}

		usable = append(usable, c.predictedMetric)
		out.expiresAt = earliest(out.expiresAt, c.forecast.ExpiresAt)
	}

	out.ready = &condition.State{
		Type: autoscalingv1alpha1.ConditionPredictionReady, Reason: autoscalingv1alpha1.ReasonPredictionIgnored, Message: strings.Join(ignored, "; "),
	}
	unknown := scalingmetric.UnknownQueryAnnotations(o.ehpa)
	// The HPA gets the forecasts only while something serves them: a metric that is missing keeps it from scaling down.
	switch {
	case out.prediction == nil:
		out.ready.Reason = autoscalingv1alpha1.ReasonNothingToPredict
	case len(usable) == 0:
	case !o.availability.Served && (o.availability.Expired || !hasForecastMetric(o.hpa)):
		out.ready.Reason = autoscalingv1alpha1.ReasonMetricsAPIMissing
		out.ready.Message = "external.metrics.k8s.io/v1beta1 does not serve " + autoscalingv1alpha1.MetricPrediction +
			": the HPA scales on current metrics alone; install the metric-adapter of Crane"

	default:
		out.active = usable
		if len(ignored) == 0 && len(unknown) > 0 {
			out.ready.Reason = autoscalingv1alpha1.ReasonUnknownMetricQuery
		} else if len(ignored) == 0 {
			out.ready.OK = true
			out.ready.Message = strings.Join(byRule, "; ")
			out.ready.Reason = autoscalingv1alpha1.ReasonPredicting
		}
	}

	// Such an annotation has no effect, and the forecast is of another query than the user means.
	if len(unknown) > 0 {
		text := fmt.Sprintf("no metric has the annotation %s; the annotations of the metrics are %s",
			strings.Join(unknown, ", "), strings.Join(scalingmetric.QueryAnnotations(o.ehpa), ", "))
		out.ready.Message = strings.Trim(out.ready.Message+"; "+text, "; ")
	}

	return out
}

// forecastCandidates returns a candidate for each metric, in the order of the spec.
func forecastCandidates(o observation, queries *QueryBuilder) []forecastCandidate {
	metrics := scalingmetric.MetricSpecs(o.ehpa)
	names := scalingmetric.Identifiers(metrics)
	out := make([]forecastCandidate, len(metrics))
	for i := range metrics {
		out[i] = newForecastCandidate(o, &metrics[i], names[i], queries)
	}

	return out
}

func newForecastCandidate(o observation, m *autoscalingv2.MetricSpec, identifier string, queries *QueryBuilder) forecastCandidate {
	out := forecastCandidate{predictedMetric: predictedMetric{identifier: identifier}}
	previous := previousMetric(o.prediction, identifier)
	built, err := queries.build(o.ehpa, m, identifier)
	if previous != nil && (queries.Rules().Pending || errors.Is(err, promadapter.ErrNotListed) || errors.Is(err, errNoSeries)) {
		// Until the rules are read after a start, and while a metric has no series, the previous query stays: another one would start
		// without history.
		built = historyQuery{PredictionMetric: *previous.DeepCopy()}
		err = nil
	}

	if err != nil {
		out.err = err
		return out
	}

	out.rule = built.rule
	query := built.PredictionMetric
	query.ResourceIdentifier = identifier
	query.Scaling = nil
	a := o.ehpa.Spec.Prediction.PredictionAlgorithm

	query.Algorithm = predictionv1alpha1.Algorithm{AlgorithmType: a.AlgorithmType, DSP: a.DSP.DeepCopy(), Percentile: a.Percentile.DeepCopy()}
	if previous != nil { // A transient error must not restart the ledger.
		query.Scaling = previous.Scaling.DeepCopy()
	}

	out.query = &query
	if out.perPod, out.err = perPodTarget(o.requests, m); out.err != nil {
		return out
	}

	plant, err := scalingPlant(o.ehpa, m, out.perPod)
	if err != nil {
		out.err = err
		return out
	}

	query.Scaling = plant
	if o.prediction == nil {
		out.err = scalingmetric.ErrNotReady
		return out
	}

	out.forecast, out.err = scalingmetric.ActionableForecast(o.prediction, identifier, o.now)
	return out
}

// previousMetric returns the metric that the existing TimeSeriesPrediction forecasts under an identifier, nil for none.
func previousMetric(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) *predictionv1alpha1.PredictionMetric {
	if tsp == nil {
		return nil
	}

	return scalingmetric.MetricSpec(tsp, identifier)
}

// desiredPrediction returns the TimeSeriesPrediction for the candidates that have a query, nil without any.
func desiredPrediction(o observation, candidates []forecastCandidate) *predictionv1alpha1.TimeSeriesPrediction {
	var metrics []predictionv1alpha1.PredictionMetric
	for _, c := range candidates {
		if c.query != nil {
			metrics = append(metrics, *c.query)
		}
	}

	if len(metrics) == 0 {
		return nil
	}

	ehpa := o.ehpa
	out := &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}}
	if o.prediction != nil {
		out = o.prediction.DeepCopy()
	}

	ref := qualifiedRef(ehpa.Spec.ScaleTargetRef)
	labels := managedLabels(ehpa, out.Name)
	labels[autoscalingv1alpha1.LabelTargetKind] = scalingmetric.LabelValue(ref.Kind)
	labels[autoscalingv1alpha1.LabelTargetNamespace] = ehpa.Namespace
	labels[autoscalingv1alpha1.LabelTargetName] = scalingmetric.LabelValue(ref.Name)
	out.Labels = mergedMetadata(out.Labels, nil, nil, nil, labels)

	out.Spec = predictionv1alpha1.TimeSeriesPredictionSpec{
		TargetRef: &corev1.ObjectReference{
			APIVersion: ref.APIVersion,
			Kind:       ref.Kind,
			Namespace:  ehpa.Namespace,
			Name:       ref.Name,
		},
		PredictionWindowSeconds: predictionv1alpha1.DefaultPredictionWindowSeconds,
		PredictionMetrics:       metrics,
	}

	if w := ehpa.Spec.Prediction.PredictionWindowSeconds; w != nil {
		out.Spec.PredictionWindowSeconds = *w
	}

	setController(out, ehpa)
	return out
}

// removeAdapterLabels removes the labels by which the metric adapter finds a prediction. Without an HPA the forecast serves previews
// only, and must not be mistaken for that of another autoscaler of the target.
func removeAdapterLabels(tsp *predictionv1alpha1.TimeSeriesPrediction) {
	for _, label := range []string{
		autoscalingv1alpha1.LabelManagedBy, autoscalingv1alpha1.LabelTargetKind,
		autoscalingv1alpha1.LabelTargetNamespace, autoscalingv1alpha1.LabelTargetName,
	} {
		delete(tsp.Labels, label)
	}
}

// hasForecastMetric reports whether an HPA has forecasts among its metrics.
func hasForecastMetric(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	if hpa != nil {
		for _, m := range hpa.Spec.Metrics {
			if m.External != nil && m.External.Metric.Name == autoscalingv1alpha1.MetricPrediction {
				return true
			}
		}
	}

	return false
}
