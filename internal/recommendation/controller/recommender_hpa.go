// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/hpa"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// hpaEvaluator recommends horizontal autoscalers. It follows the Resource recommender: the autoscaler acts on the requests that
// Resource proposes.
type hpaEvaluator struct {
	settings hpa.Settings
	existing map[identity]autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
}

func (e *hpaEvaluator) usageWindow() time.Duration { return e.settings.Replicas.Window }
func (e *hpaEvaluator) needsTotals() bool          { return true }

func (e *hpaEvaluator) gather(ctx context.Context, d *runData, targets []workload.Workload) error {
	if _, err := d.usage(ctx); err != nil {
		return err
	}

	var err error
	e.existing, err = d.effectiveHPAs(ctx, targets)
	return err
}

func (e *hpaEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	in := hpa.Input{Replicas: d.replicasInput(target), PodCPU: e.podCPU(d, target)}
	existing, exists := e.existing[identityOf(target.Ref, "")]
	if exists {
		in.Existing = boundsOf(existing.Spec)
	}

	// The utilization refers to the request, which the Resource recommender may be about to change.
	foreign := firstForeignAutoscaler(d.read.constraints.Autoscalers(target.Ref))
	if plan, decided := d.plans[target.Ref]; decided && plan.State == recommend.Ready && foreign == "" {
		if cpu := requestAfter(plan); cpu > 0 && cpu != in.Replicas.CPURequest {
			in.Replicas.CPURequest = cpu
			in.RequestChanges = true
		}
	}

	plan := hpa.Decide(in, e.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready || plan.Bounds == (hpa.Bounds{}) {
		return out, nil
	}

	if foreign != "" {
		out.notApplicable = notApplicable(reasonAutoscalerNotOwned, fmt.Sprintf("HorizontalPodAutoscaler %s scales the workload and is not Crane's: two of them would work against each other.", foreign))
	}

	var err error
	if exists {
		err = e.patch(&out, existing, plan)
	} else {
		err = e.create(&out, target, plan, d.read.constraints.Autoscalers(target.Ref))
	}

	return out, err
}

// encodeEffectiveHPA returns the YAML document of recommendedValue.
func encodeEffectiveHPA(plan hpa.Plan, metrics []autoscalingv2.MetricSpec) (string, error) {
	proposed := analysisv1alpha1.EffectiveHPARecommendation{MinReplicas: &plan.Bounds.Min, MaxReplicas: &plan.Bounds.Max, Metrics: metrics}
	if plan.Forecast {
		proposed.Prediction = defaultPrediction()
	}

	raw, err := yaml.Marshal(analysisv1alpha1.ProposedRecommendation{EffectiveHPA: &proposed})
	if err != nil {
		return "", fmt.Errorf("encoding the recommended value: %w", err)
	}

	return string(raw), nil
}

// podCPU returns the sum of the 99th percentiles of the containers of a pod, in cores; NaN if it is unknown.
func (e *hpaEvaluator) podCPU(d *runData, target workload.Workload) float64 {
	sum := 0.0
	for _, c := range target.Containers {
		if c.Role != workload.Init {
			sum += d.read.usage.CPUQuantile(target.Ref, c.Name, d.historyEnd, e.settings.Replicas.Window, 0.99)
		}
	}

	if sum == 0 {
		return math.NaN()
	}

	return sum
}

// requestAfter returns the CPU request of a pod after a plan, without init containers.
func requestAfter(plan resource.Plan) units.MilliCPU {
	var sum units.MilliCPU
	for _, r := range plan.Containers {
		switch {
		case r.Init:
		case r.CPU.Status == rightsize.Ready && r.Target.CPURequest != nil:
			sum += *r.Target.CPURequest
		case r.Current.CPURequest != nil:
			sum += *r.Current.CPURequest
		}
	}

	return sum
}

func firstForeignAutoscaler(all []workload.Autoscaler) string {
	for _, a := range all {
		if a.Owner == "" {
			return a.Name
		}
	}

	return ""
}

// boundsOf returns the bounds of an existing autoscaler.
func boundsOf(spec autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec) *hpa.Bounds {
	out := hpa.Bounds{Min: 1, Max: spec.MaxReplicas}
	if spec.MinReplicas != nil {
		out.Min = *spec.MinReplicas
	}

	for _, m := range spec.Metrics {
		if isCPUMetric(m) && m.Resource.Target.AverageUtilization != nil {
			out.Target = *m.Resource.Target.AverageUtilization
		}
	}

	return &out
}

func isCPUMetric(m autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU
}

// metricsOf returns a CPU metric with the target, and the other existing metrics if the settings keep them.
func (e *hpaEvaluator) metricsOf(target int32, others []autoscalingv2.MetricSpec) []autoscalingv2.MetricSpec {
	out := []autoscalingv2.MetricSpec{{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
			Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &target,
		}},
	}}

	if !e.settings.KeepMetrics {
		return out
	}

	return append(out, slices.DeleteFunc(slices.Clone(others), isCPUMetric)...)
}

// create proposes a new autoscaler with the strategy Preview, in which it does not act.
func (e *hpaEvaluator) create(out *decision, target workload.Workload, plan hpa.Plan, autoscalers []workload.Autoscaler) error {
	// Other metrics of the existing autoscalers are kept.
	var others []autoscalingv2.MetricSpec
	for _, a := range autoscalers {
		others = append(others, a.Metrics...)
	}

	spec := autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: target.APIVersion, Kind: target.Kind, Name: target.Name},
		MinReplicas:    &plan.Bounds.Min,
		MaxReplicas:    plan.Bounds.Max,
		ScaleStrategy:  autoscalingv1alpha1.ScaleStrategyPreview,
		Metrics:        e.metricsOf(plan.Bounds.Target, others),
	}

	if plan.Forecast {
		spec.Prediction = defaultPrediction()
	}

	raw, err := json.Marshal(autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: effectiveHPAKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: target.Namespace, Name: target.Name},
		Spec:       spec,
	})
	if err != nil {
		return fmt.Errorf("encoding the autoscaler: %w", err)
	}

	out.recommended = string(raw)
	out.appliesTo = &corev1.ObjectReference{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(),
		Kind:       effectiveHPAKind,
		Namespace:  target.Namespace,
		Name:       target.Name,
	}

	out.value, err = encodeEffectiveHPA(plan, spec.Metrics)
	return err
}

// defaultPrediction returns gocrane's prediction: one hour ahead, from the minutes of a week.
func defaultPrediction() *autoscalingv1alpha1.Prediction {
	window := int32(3600)
	return &autoscalingv1alpha1.Prediction{
		PredictionWindowSeconds: &window,
		PredictionAlgorithm: &autoscalingv1alpha1.PredictionAlgorithm{
			AlgorithmType: predictionv1alpha1.AlgorithmTypeDSP, DSP: &predictionv1alpha1.DSP{SampleInterval: "1m", HistoryLength: "7d"},
		},
	}
}

// boundsPatch are the patched fields of an autoscaler.
type boundsPatch struct {
	MinReplicas *int32                     `json:"minReplicas,omitempty"`
	MaxReplicas int32                      `json:"maxReplicas"`
	Metrics     []autoscalingv2.MetricSpec `json:"metrics,omitempty"`
}

// patch proposes new bounds for an existing autoscaler and leaves its other fields alone.
func (e *hpaEvaluator) patch(out *decision, existing autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, plan hpa.Plan) error {
	metrics := e.metricsOf(plan.Bounds.Target, existing.Spec.Metrics)
	for _, side := range []struct {
		field *string
		spec  boundsPatch
	}{
		{&out.current, boundsPatch{existing.Spec.MinReplicas, existing.Spec.MaxReplicas, existing.Spec.Metrics}},
		{&out.recommended, boundsPatch{&plan.Bounds.Min, plan.Bounds.Max, metrics}},
	} {
		raw, err := json.Marshal(map[string]boundsPatch{"spec": side.spec})
		if err != nil {
			return fmt.Errorf("encoding the patch: %w", err)
		}

		*side.field = string(raw)
	}

	out.appliesTo = &corev1.ObjectReference{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(),
		Kind:       effectiveHPAKind,
		Namespace:  existing.Namespace,
		Name:       existing.Name,
		UID:        existing.UID,
	}

	var err error
	out.value, err = encodeEffectiveHPA(plan, metrics)
	return err
}
