// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/recommendation/sizesources"
)

// TestSizeSources checks that a workload with three answers lists each with its number, whether it acts and why.
func TestSizeSources(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	frontend := workload.Workload{
		Ref: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "frontend"}, Replicas: 3,
		Containers: []workload.Container{
			{Name: "setup", Role: workload.Init, Requests: workload.Resources{CPU: 9000}},
			{Name: "app", Role: workload.App, Requests: workload.Resources{CPU: 1000, Memory: 384 << 20}},
		},
	}

	recommendation := func(name string, adoption analysisv1alpha1.AdoptionType) *analysisv1alpha1.Recommendation {
		return &analysisv1alpha1.Recommendation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{analysisv1alpha1.LabelRuleName: "playground"}},
			Spec: analysisv1alpha1.RecommendationSpec{
				Type: analysisv1alpha1.AnalysisTypeResource, AdoptionType: adoption, TargetRef: corev1.ObjectReference{Kind: "Deployment", Name: "frontend"},
			},
			Status: analysisv1alpha1.RecommendationStatus{RecommendationContent: analysisv1alpha1.RecommendationContent{
				RecommendedValue: "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: 778m, memory: 201Mi}\n",
			}},
		}
	}

	ehpa := func(name string, strategy autoscalingv1alpha1.ScaleStrategy, reason, why string) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
		return &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "frontend"}, ScaleStrategy: strategy,
			},
			Status: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus{
				ExpectReplicas: new(int32(2)), Why: why,
				Conditions: []metav1.Condition{{Type: autoscalingv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reason, Message: "computed"}},
			},
		}
	}

	percent := int32(70)
	autoscalers := []runtime.Object{
		&autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "frontend"},
			Spec: autoscalingv1alpha1.EffectiveVerticalPodAutoscalerSpec{
				TargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "frontend"},
			},
			Status: autoscalingv1alpha1.EffectiveVerticalPodAutoscalerStatus{
				Recommendation: &autoscalingv1alpha1.RecommendedPodResources{ContainerRecommendations: []autoscalingv1alpha1.RecommendedContainerResources{{
					ContainerName: "app", Target: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("366m")},
				}}},
				Decisions:  []autoscalingv1alpha1.VerticalDecision{{ContainerName: "app", Estimator: "Percentile"}},
				Conditions: []metav1.Condition{{Type: "Applied", Status: metav1.ConditionFalse, Reason: "Off", Message: "update mode Off computes, and applies nothing"}},
			},
		},
		&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "frontend"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "frontend"},
				MaxReplicas:    5,
				Metrics: []autoscalingv2.MetricSpec{{Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{AverageUtilization: &percent},
				}}},
			},
			Status: autoscalingv2.HorizontalPodAutoscalerStatus{DesiredReplicas: 4},
		},
		ehpa("ahead", autoscalingv1alpha1.ScaleStrategyPreview, "PreviewComputed", "resource.cpu is 19, the target 60"),
		ehpa("acting", autoscalingv1alpha1.ScaleStrategyAuto, "EffectiveHorizontalPodAutoscalerReady", ""),
		&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ehpa-acting", OwnerReferences: []metav1.OwnerReference{{
				Kind: "EffectiveHorizontalPodAutoscaler", Name: "acting", Controller: new(true),
			}}},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "frontend"}, MaxReplicas: 9,
			},
		},
	}

	for name, c := range map[string]struct {
		adoption analysisv1alpha1.AdoptionType
		want     []string
	}{
		"proposed": {analysisv1alpha1.AdoptionTypeStatusAndAnnotation, []string{
			"pod template                               1     384Mi   3         yes",
			"Recommendation frontend (rule playground)  778m  201Mi   -         no    its adoptionType is StatusAndAnnotation: crane adopt",
			"EffectiveVerticalPodAutoscaler frontend    366m  -       -         no    Off: update mode Off",
			"HorizontalPodAutoscaler frontend           -     -       4         yes   sets replicas within 1 and 5, at 70 % of the cpu request. Crane keeps",
			"EffectiveHorizontalPodAutoscaler ahead     -     -       2         no    PreviewComputed: computed; resource.cpu is 19, the target 60",
			"EffectiveHorizontalPodAutoscaler acting    -     -       2         yes   EffectiveHorizontalPodAutoscalerReady: computed",
			"HorizontalPodAutoscaler ehpa-acting        -     -       -         yes   sets replicas within 1 and 9; written by EffectiveHorizontalPodAutoscaler acting",
		}},
		"adopted": {analysisv1alpha1.AdoptionTypeAuto, []string{
			"pod template                               1     384Mi   3         no    running pods and new pods get the requests of Recommendation frontend",
			"Recommendation frontend (rule playground)  778m  201Mi   -         yes   its adoptionType is Auto",
		}},
	} {
		c1 := fake.NewClientBuilder().WithScheme(scheme).WithObjects(recommendation("frontend", c.adoption)).WithRuntimeObjects(autoscalers...).Build()
		found, err := sizesources.Read(t.Context(), c1, frontend)
		if err != nil {
			t.Fatal(err)
		}

		var out strings.Builder
		if err := renderSizeSources(&out, found); err != nil {
			t.Fatal(err)
		}

		for _, want := range c.want {
			if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(want), " ")) && !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
	}
}
