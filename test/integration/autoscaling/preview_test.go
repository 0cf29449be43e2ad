// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

func preview(e *ehpa) { e.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyPreview }

func auto(e *ehpa) { e.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyAuto }

// awaitExpectedReplicas waits until the status of an autoscaler has a number of expected replicas.
func (f *fixture) awaitExpectedReplicas(name string, want int32) *ehpa {
	f.T.Helper()

	return f.awaitScaler(name, fmt.Sprintf("wants %d", want), func(e *ehpa) error {
		if e.Status.ExpectReplicas == nil || *e.Status.ExpectReplicas != want {
			return fmt.Errorf("status %+v", e.Status)
		}

		return nil
	})
}

// wantReplicas checks the replicas of a Deployment.
func (f *fixture) wantReplicas(name string, want int32) {
	f.T.Helper()

	if got, err := f.replicas(f.T.Context(), name); err != nil || got != want {
		f.T.Errorf("%s is at %d, %v; want %d", name, got, err, want)
	}
}

// TestPreviewShowsAndScalesNothing checks that the HPA scales a Substitute, that specificReplicas scales the target, and that
// switching the strategy leaves no objects behind and replicas unchanged.
func TestPreviewShowsAndScalesNothing(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 900) // 120 % of 250m in each of three pods; the target is 60 %
	f.CreateAll(deployment("web", 3, 250), scaler("web", preview))
	f.awaitHPA("ehpa-web", "scales the stand-in", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if ref := h.Spec.ScaleTargetRef; ref.Kind != "Substitute" || ref.Name != "ehpa-web" {
			return fmt.Errorf("it scales %+v", ref)
		}

		return nil
	})

	e := f.awaitExpectedReplicas("web", 6)
	if *e.Status.CurrentReplicas != 3 || e.Status.Autoscaler != "HorizontalPodAutoscaler/ehpa-web" || e.Status.Winner != "resource.cpu" {
		t.Errorf("status %+v, want 3 replicas and resource.cpu as winner", e.Status)
	}

	f.wantReplicas("web", 3)

	t.Log("a fixed number is set")
	four := int32(4)
	f.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = &four })
	f.awaitReplicas("web", 4)
	f.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = nil })

	t.Log("Auto takes over with the same HPA")
	f.change("web", auto)
	f.AwaitGone(&autoscalingv1alpha1.Substitute{}, "ehpa-web")
	f.awaitHPA("ehpa-web", "scales the target", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.ScaleTargetRef.Kind != "Deployment" {
			return fmt.Errorf("it scales %+v", h.Spec.ScaleTargetRef)
		}

		return nil
	})

	f.awaitReplicas("web", 6)
	t.Log("and back")
	f.change("web", preview)
	f.awaitHPA("ehpa-web", "scales the stand-in again", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.ScaleTargetRef.Kind != "Substitute" {
			return fmt.Errorf("it scales %+v", h.Spec.ScaleTargetRef)
		}

		return nil
	})

	metrics.setSharedLoad(f.Name, 450)
	f.awaitExpectedReplicas("web", 3)
	f.wantReplicas("web", 6)
}

// TestForeignAutoscalersAreNeverFought checks that a foreign HPA is reported, that a preview beside it is computed, and that an
// autoscaler scales nothing until it adopts the HPA.
func TestForeignAutoscalersAreNeverFought(t *testing.T) {
	f := newFixture(t)
	metrics.setPodUsage(f.Name, 300)
	two := int32(2)
	percent := int32(90)

	theirs := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		MinReplicas:    &two, MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{cpu()},
	}}
	theirs.Name = "theirs"
	theirs.Spec.Metrics[0].Resource.Target.AverageUtilization = &percent
	f.CreateAll(deployment("web", 3, 250), theirs, scaler("web", preview))

	f.awaitCondition("web", "Ready=True/PreviewComputed")
	e := f.awaitExpectedReplicas("web", 6)
	if e.Status.Autoscaler != "Preview" || e.Status.Winner != "resource.cpu" || e.Status.Why == "" {
		t.Errorf("status %+v, want a preview with resource.cpu as winner", e.Status)
	}
	if p := proposal(e, "resource.cpu"); p.Replicas == nil || *p.Replicas != 6 || p.Current != "120" || p.Target != "60" {
		t.Errorf("proposals %+v, want 6 replicas at 120 of 60", e.Status.Proposals)
	}

	f.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-web")
	f.wantReplicas("web", 3)

	t.Log("a preview does not set a fixed number against it")
	f.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = &two })
	f.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	f.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = nil })

	t.Log("Auto gives way")
	f.change("web", auto)
	f.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	f.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-web")
	f.wantReplicas("web", 3)

	t.Log("an annotation makes it adopt the HPA, which keeps its name")
	f.change("web", func(e *ehpa) {
		e.Annotations = map[string]string{autoscalingv1alpha1.AnnotationAdoptHPA: "theirs"}
	})
	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")

	f.awaitHPA("theirs", "taken over", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.MaxReplicas != 20 {
			return fmt.Errorf("spec %+v", h.Spec)
		}

		return nil
	})

	f.awaitReplicas("web", 20)

	t.Log("and it is given back as it was")
	f.change("web", func(e *ehpa) { delete(e.Annotations, autoscalingv1alpha1.AnnotationAdoptHPA) })
	f.awaitCondition("web", "Ready=False/ForeignAutoscaler")

	h := f.awaitHPA("theirs", "given back", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.MaxReplicas != 3 || len(h.OwnerReferences) > 0 {
			return fmt.Errorf("%+v, spec %+v", h.ObjectMeta, h.Spec)
		}

		return nil
	})

	if *h.Spec.Metrics[0].Resource.Target.AverageUtilization != 90 || h.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec] != "" {
		t.Errorf("HPA %+v %+v, want it untouched", h.ObjectMeta, h.Spec)
	}

	t.Log("when theirs goes, ours comes")
	if err := f.Delete(t.Context(), theirs, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}

	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	f.awaitHPA("ehpa-web", "made", func(*autoscalingv2.HorizontalPodAutoscaler) error { return nil })
}

// TestPausedScaledObject checks that a KEDA autoscaler without an HPA counts as a foreign autoscaler.
func TestPausedScaledObject(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 300)
	kind := schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}

	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": kind.Group, "scope": "Namespaced",
		"names": map[string]any{"kind": kind.Kind, "listKind": "ScaledObjectList", "plural": "scaledobjects", "singular": "scaledobject"},
		"versions": []any{map[string]any{
			"name": kind.Version, "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}}}

	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	definition.SetName("scaledobjects.keda.sh")

	if err := f.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = f.Delete(context.WithoutCancel(t.Context()), definition) })
	paused := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"scaleTargetRef": map[string]any{"name": "web"}}}}
	paused.SetGroupVersionKind(kind)
	paused.SetNamespace(f.Name)
	paused.SetName("paused")
	f.Eventually("the kind is served", func(ctx context.Context) error { return f.Create(ctx, paused) })

	f.CreateAll(deployment("web", 2, 250), scaler("web"))
	e := f.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	wantMessage(t, e, "Ready", "ScaledObject paused scales the same target")
	f.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-web")
	f.change("web", preview)
	f.awaitCondition("web", "Ready=True/PreviewComputed")

	t.Log("KEDA is uninstalled, under a craned that knows its kind")
	f.change("web", auto)
	f.awaitCondition("web", "Ready=False/ForeignAutoscaler")

	if err := f.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}

	f.Eventually("its kind is not served", func(ctx context.Context) error {
		err := f.Get(ctx, client.ObjectKeyFromObject(definition), definition.DeepCopy())
		if apierrors.IsNotFound(err) {
			err = f.Get(ctx, client.ObjectKeyFromObject(paused), paused.DeepCopy())
		}

		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}

		return nil
	})

	f.change("web", func(e *ehpa) { e.Spec.MaxReplicas = 19 })
	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
}

// TestTwoAutoscalersOnOneTarget checks that the older one scales, and that the younger reports it and takes over after its deletion.
func TestTwoAutoscalersOnOneTarget(t *testing.T) {
	f := newFixture(t)
	metrics.setPodUsage(f.Name, 150)
	f.CreateAll(deployment("web", 2, 250), scaler("web"))
	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	second := scaler("zweite", func(e *ehpa) { e.Spec.ScaleTargetRef.Name = "web" })
	f.CreateAll(second)

	e := f.awaitCondition("zweite", "Ready=False/TargetTaken")
	if e.Status.ExpectReplicas != nil {
		t.Errorf("status %+v, want no expected replicas", e.Status)
	}

	f.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-zweite")
	f.change("zweite", preview)
	f.awaitCondition("zweite", "Ready=True/PreviewComputed")
	f.awaitExpectedReplicas("zweite", 2)
	f.change("zweite", auto)
	f.awaitCondition("zweite", "Ready=False/TargetTaken")

	first := scaler("web")
	first.Namespace = f.Name
	if err := f.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}

	f.awaitCondition("zweite", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	f.awaitHPA("ehpa-zweite", "made", func(*autoscalingv2.HorizontalPodAutoscaler) error { return nil })
	f.wantReplicas("web", 2)
}

// TestPreviewFollowsItsTarget checks that a preview neither uses a stand-in of others nor keeps the target of an earlier spec, and that its HPA
// goes when another autoscaler comes, whose metrics craned then reads itself.
func TestPreviewFollowsItsTarget(t *testing.T) {
	f := newFixture(t)
	foreign := &autoscalingv1alpha1.Substitute{Spec: autoscalingv1alpha1.SubstituteSpec{
		SubstituteTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"},
	}}
	foreign.Name = "ehpa-web"

	perPod := func(e *ehpa) {
		e.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "absent"},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("1"))},
		}}}
	}

	f.CreateAll(deployment("web", 2, 250), deployment("other", 2, 250), foreign, scaler("web", preview, perPod))
	f.awaitCondition("web", "Ready=False/FailedReconcileSubstitute")
	f.Remove(foreign)

	standsFor := func(target string) {
		t.Helper()

		harness.Await(f.Namespace, &autoscalingv1alpha1.Substitute{}, "ehpa-web", "stands for "+target, func(s *autoscalingv1alpha1.Substitute) error {
			if s.Spec.SubstituteTargetRef.Name != target {
				return fmt.Errorf("spec %+v", s.Spec)
			}

			return nil
		})
	}

	f.change("web", func(e *ehpa) { e.Labels = map[string]string{"again": "1"} })
	standsFor("web")
	f.change("web", func(e *ehpa) { e.Spec.ScaleTargetRef.Name = "other" })
	standsFor("other")

	theirs := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"}, MaxReplicas: 3,
	}}
	theirs.Name = "theirs"
	f.CreateAll(theirs)
	f.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-web")
	f.AwaitGone(&autoscalingv1alpha1.Substitute{}, "ehpa-web")

	f.awaitScaler("web", "names the metric without value", func(e *ehpa) error {
		for _, p := range e.Status.Proposals {
			if strings.Contains(fmt.Sprint(p), "absent") {
				return nil
			}
		}

		return fmt.Errorf("status %+v", e.Status)
	})
}
