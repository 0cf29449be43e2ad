// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// installVPA installs the definition of VerticalPodAutoscalers without a controller.
func installVPA(t *testing.T) {
	t.Helper()

	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "verticalpodautoscalers.autoscaling.k8s.io",
			Annotations: map[string]string{"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "autoscaling.k8s.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "verticalpodautoscalers", Singular: "verticalpodautoscaler", Kind: "VerticalPodAutoscaler"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", XPreserveUnknownFields: &keep}},
				}},
			}},
		},
	}

	if err := admin.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}

	eventually(t, "VerticalPodAutoscalers are served", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("autoscaling.k8s.io/v1")
		list.SetKind("VerticalPodAutoscalerList")

		return admin.List(ctx, list)
	})
}

// testForeignVPA checks that a VerticalPodAutoscaler is reported, and that nothing is applied until it is deleted.
func testForeignVPA(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	f.Deploy("web", 1)
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
	}}}
	vpa.SetAPIVersion("autoscaling.k8s.io/v1")
	vpa.SetKind("VerticalPodAutoscaler")

	vpa.SetName("theirs")
	f.CreateAll(vpa, autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.await("web", "leaves the pods to the VPA", condition("Applied", metav1.ConditionFalse, "VerticalPodAutoscalerPresent", "VerticalPodAutoscaler theirs"))
	f.await("web", "still says what is needed", condition("Ready", metav1.ConditionTrue, "", ""))
	f.noRecommendation("web")
	f.AwaitPods("web", "are untouched", requestsCPU(1000, 1))
	f.Remove(vpa)
	f.AwaitPods("web", "are resized", requestsCPU(230, 1))
}

// testTwoOfOneTarget checks that the older autoscaler is applied, and that the other reports it and takes over after its deletion.
func testTwoOfOneTarget(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	f.Deploy("web", 1)
	f.CreateAll(autoscaler("b-first", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	first := f.await("b-first", "is ready", condition("Ready", metav1.ConditionTrue, "", ""))

	// Creation times are whole seconds, and names break a tie.
	f.Eventually("another second", func(context.Context) error {
		if time.Since(first.CreationTimestamp.Time) < 2*time.Second {
			return errors.New("not yet")
		}

		return nil
	})

	f.CreateAll(autoscaler("a-second", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.await("a-second", "stands back", condition("Applied", metav1.ConditionFalse, "OtherAutoscalerOfTarget", "b-first"))
	f.noRecommendation("a-second")
	f.AwaitPods("web", "are resized", requestsCPU(230, 1))
	f.Remove(first)
	f.recommendation("a-second", "takes over", func(*analysisv1alpha1.Recommendation) error { return nil })
}

// testBesideRule checks that an autoscaler of the target precedes a rule.
func testBesideRule(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	f.Deploy("web", 1)
	rule := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Name: "rule-resource"},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: f.Name, Name: "web"},
			Type:      analysisv1alpha1.AnalysisTypeResource, AdoptionType: analysisv1alpha1.AdoptionTypeStatusAndAnnotation,
		},
	}

	f.CreateAll(rule)
	rule.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: 700m, memory: 512Mi}\n"
	if err := admin.Status().Update(f.T.Context(), rule); err != nil {
		f.T.Fatal(err)
	}

	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.AwaitPods("web", "have what the autoscaler says", requestsCPU(230, 1))
}

// testOOMKill checks that an OOM kill raises the request at once.
func testOOMKill(f *fixture) {
	// The history matches the requests, so that nothing is resized before the kill.
	f.writeHistory("web", 0.2, 130*mib)
	f.Deploy("web", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: harness.ResourceList("230m", "150Mi"), Limits: harness.ResourceList("", "150Mi")}
	})
	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.await("web", "is ready", condition("Ready", metav1.ConditionTrue, "", ""))
	load.overload(f.Name)

	e := f.await("web", "knows of the kill", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		if d := decision(e, corev1.ResourceMemory); d.Estimator != "OOM" || d.Request == nil || d.Request.Value() < 250*mib || !strings.Contains(d.Reason, "it was killed with") {
			return fmt.Errorf("%+v", d)
		}

		return nil
	})

	load.relieve(f.Name)
	if d := decision(e, corev1.ResourceMemory); d.RaisedAt == nil {
		f.T.Errorf("decision on memory: %+v, want a raise", d)
	}

	f.AwaitPods("web", "have more memory, and as much more at most", func(pods []corev1.Pod) error {
		for i := range pods {
			r := pods[i].Spec.Containers[0].Resources
			if r.Requests.Memory().Value() < 250*mib || r.Limits.Memory().Cmp(*r.Requests.Memory()) != 0 {
				return fmt.Errorf("%+v", r)
			}
		}

		return nil
	})
}

// testEstimators checks that priorities decide, that a failing estimator sets a condition and lowers nothing, and that answers of a
// foreign estimator count while they are new.
func testEstimators(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	f.Deploy("web", 2)
	tsp := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Name: "load"},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			PredictionWindowSeconds: 3600,
			TargetRef:               &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Namespace: f.Name},
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
				ResourceIdentifier: "cpu", Type: predictionv1alpha1.ExpressionQueryMetricType,
				ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "sum(x)"},
				Algorithm:       predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypeDSP},
			}},
		},
	}

	f.CreateAll(tsp)
	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeOff), func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		e.Spec.ResourceEstimators = append(e.Spec.ResourceEstimators,
			autoscalingv1alpha1.ResourceEstimator{Type: "Forecast", Priority: 5, Config: map[string]string{"prediction": "load", "cpu-identifier": "cpu"}},
			autoscalingv1alpha1.ResourceEstimator{Type: "External", Priority: -1, Config: map[string]string{"memory-metric-name": "heap_need"}},
			autoscalingv1alpha1.ResourceEstimator{Type: "Theirs", Priority: 9},
		)
	}))

	f.await("web", "names those that fail", condition("Estimating", metav1.ConditionFalse, "EstimatorFailed", "Forecast: cpu of load: there is no forecast yet"))
	f.await("web", "names the foreign estimator", condition("Estimating", metav1.ConditionFalse, "", "Theirs: it has written no answer"))
	f.await("web", "names the metric", condition("Estimating", metav1.ConditionFalse, "", "External: metric heap_need"))

	e := f.await("web", "is ready all the same", condition("Ready", metav1.ConditionTrue, "", ""))
	if d := decision(e, corev1.ResourceCPU); d.Action != autoscalingv1alpha1.VerticalActionHold || d.Estimator != "Percentile" || !strings.Contains(d.Reason, "without that nothing is lowered") {
		f.T.Errorf("decision on CPU: %+v, want it held by Percentile", d)
	}

	// The forecast is 1.2 cores for all pods together: 600m for each of two, plus 15 %.
	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{harness.FlatForecast("cpu", "0.900", time.Now().Truncate(time.Minute), 1.2)}
	if err := admin.Status().Update(f.T.Context(), tsp); err != nil {
		f.T.Fatal(err)
	}

	f.await("web", "follows the forecast", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		d := decision(e, corev1.ResourceCPU)
		if target := e.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().MilliValue(); d.Estimator != "Forecast" || target != 690 {
			return fmt.Errorf("%d, %+v", target, d)
		}

		return nil
	})

	// The answer of the foreign estimator has the highest priority.
	f.Eventually("the other estimator writes", func(ctx context.Context) error {
		e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
		if err := admin.Get(ctx, f.Key("web"), e); err != nil {
			return err
		}

		at := metav1.Now()
		e.Status.ResourceEstimators = append(e.Status.ResourceEstimators, autoscalingv1alpha1.ResourceEstimatorStatus{
			Type: "Theirs", LastUpdateTime: &at,
			Recommendation: &autoscalingv1alpha1.RecommendedPodResources{
				ContainerRecommendations: []autoscalingv1alpha1.RecommendedContainerResources{{ContainerName: "app", Target: harness.ResourceList("333m", "")}},
			},
		})

		return admin.Status().Update(ctx, e)
	})

	e = f.await("web", "follows the other", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		if d := decision(e, corev1.ResourceCPU); d.Estimator != "Theirs" || !strings.Contains(d.Reason, "Theirs estimates 333m") {
			return fmt.Errorf("%+v", d)
		}

		return nil
	})

	theirs := 0
	for _, s := range e.Status.ResourceEstimators {
		if s.Type == "Theirs" {
			theirs++
		}
	}

	if theirs != 1 {
		f.T.Errorf("the other estimator has %d answers, want 1: %+v", theirs, e.Status.ResourceEstimators)
	}
}

// hpa returns an HPA with a target of 50 % of the CPU request.
func hpa(name string) *autoscalingv2.HorizontalPodAutoscaler {
	half := int32(50)
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 1,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &half},
				},
			}},
		},
	}
}

// testEffectiveHPA checks that requests and the target of Crane's own autoscaler change together, so that it scales at the same
// usage as before.
func testEffectiveHPA(f *fixture) {
	f.writeHistory("web", 0.5, 100*mib)
	f.Deploy("web", 1)
	inner := hpa("ehpa-web")
	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
			ScaleTargetRef: inner.Spec.ScaleTargetRef, MaxReplicas: 1, Metrics: inner.Spec.Metrics,
		},
	}

	f.CreateAll(ehpa)
	controller := true
	inner.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "EffectiveHorizontalPodAutoscaler", Name: "web", UID: ehpa.UID, Controller: &controller,
	}}
	f.CreateAll(inner, autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.AwaitPods("web", "are resized", requestsCPU(575, 1))

	f.Eventually("the target of the autoscaler moves with the request", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(ehpa), ehpa); err != nil {
			return err
		}

		// 50 % of 1 core is 87 % of 575m.
		if got := *ehpa.Spec.Metrics[0].Resource.Target.AverageUtilization; got < 84 || got > 90 {
			return fmt.Errorf("it is %d %%", got)
		}

		return nil
	})

	f.recommendation("web", "names the autoscaler", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || rec.Status.Adoption.Phase != "Resting" {
			return errors.New("not at rest")
		}

		return nil
	})
}

// testForeignHPA checks that the request on which a foreign autoscaler acts is kept and the other is applied.
func testForeignHPA(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	f.Deploy("web", 1)
	f.CreateAll(hpa("theirs"), autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))

	f.AwaitPods("web", "have a lower memory request", func(pods []corev1.Pod) error {
		for i := range pods {
			if got := pods[i].Spec.Containers[0].Resources.Requests.Memory().Value(); got > 130*mib {
				return fmt.Errorf("pod %s requests %d bytes", pods[i].Name, got)
			}
		}

		return requestsCPU(1000, 1)(pods)
	})

	f.await("web", "keeps the CPU request", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		if d := decision(e, corev1.ResourceCPU); d.Action != autoscalingv1alpha1.VerticalActionHold || !strings.Contains(d.Reason, "an autoscaler acts at 50 % of the request") {
			return fmt.Errorf("%+v", d)
		}

		return nil
	})
}

// testSharedDecision checks that a rule and vertical autoscalers without settings of their own recommend the same requests, also
// beside a foreign autoscaler, and that with settings of their own each names the other and why.
func testSharedDecision(f *fixture) {
	plain := func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) { e.Spec.ResourceEstimators = nil }
	for _, name := range []string{"web", "scaled", "own"} {
		f.writeHistory(name, 0.2, 100*mib)
		f.Deploy(name, 1)
	}

	theirs := hpa("theirs")
	theirs.Spec.ScaleTargetRef.Name = "scaled"
	f.CreateAll(theirs, autoscaler("web", "", "web", plain), autoscaler("scaled", "", "scaled", plain), autoscaler("own", "", "own", plain,
		func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
			e.Spec.ResourceEstimators = []autoscalingv1alpha1.ResourceEstimator{{Type: "Percentile", Config: map[string]string{"cpu-request-margin-fraction": "0.8"}}}
		}))

	for _, name := range []string{"web", "scaled", "own"} {
		f.await(name, "is ready", condition("Ready", metav1.ConditionTrue, "", ""))
	}

	f.CreateAll(&analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name},
		Spec: analysisv1alpha1.RecommendationRuleSpec{
			ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
			NamespaceSelector: analysisv1alpha1.NamespaceSelector{MatchNames: []string{f.Name}}, RunInterval: "24h",
			Recommenders: []analysisv1alpha1.Recommender{{Name: "Resource"}},
		},
	})

	f.T.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(f.T.Context()), &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: f.Name}}); err != nil {
			f.T.Error(err)
		}
	})

	byTarget := map[string]adoption.Size{}
	f.Eventually("the rule recommends", func(ctx context.Context) error {
		var list analysisv1alpha1.RecommendationList
		if err := admin.List(ctx, &list, client.InNamespace(f.Name), client.MatchingLabels{analysisv1alpha1.LabelRuleName: f.Name}); err != nil {
			return err
		}

		for i := range list.Items {
			rec := &list.Items[i]
			size, err := targetsnapshot.DesiredSize(rec)
			if err != nil || size.Empty() {
				return fmt.Errorf("%s has no size: %w", rec.Name, err)
			}

			byTarget[rec.Spec.TargetRef.Name] = size
			if names := strings.Contains(rec.Status.Description, "EffectiveVerticalPodAutoscaler own recommends cpu of app 361m") &&
				strings.Contains(rec.Status.Description, "because the vertical autoscaler has estimators of its own"); names != (rec.Spec.TargetRef.Name == "own") {
				return fmt.Errorf("%s: %s", rec.Spec.TargetRef.Name, rec.Status.Description)
			}
		}

		if len(byTarget) != 3 {
			return fmt.Errorf("%d recommendations", len(byTarget))
		}

		return nil
	})

	for _, name := range []string{"web", "scaled"} {
		e := f.await(name, "is ready", condition("Ready", metav1.ConditionTrue, "", "there is a recommendation"))
		if got, want := targetsnapshot.VerticalSize(e).Containers["app"], byTarget[name].Containers["app"]; *got.CPURequest != *want.CPURequest || *got.MemoryRequest != *want.MemoryRequest {
			f.T.Errorf("%s: the vertical autoscaler recommends %v and %v, want %v and %v as the rule", name, *got.CPURequest, *got.MemoryRequest, *want.CPURequest, *want.MemoryRequest)
		}
	}

	if cpu := *byTarget["scaled"].Containers["app"].CPURequest; cpu != 1000 {
		f.T.Errorf("the request on which an autoscaler acts is %v, want 1000", cpu)
	}
	f.await("own", "names the Recommendation of the rule", condition("Ready", metav1.ConditionTrue, "", "(rule "+f.Name+") recommends cpu of app"))
}
