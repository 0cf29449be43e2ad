// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"fmt"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

func preview(e *ehpa) { e.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyPreview }

func auto(e *ehpa) { e.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyAuto }

// awaitExpectedReplicas waits until an autoscaler wants a number of replicas.
func (w *fixture) awaitExpectedReplicas(name string, want int32) *ehpa {
	w.T.Helper()
	return w.awaitScaler(name, fmt.Sprintf("wants %d", want), func(e *ehpa) error {
		if e.Status.ExpectReplicas == nil || *e.Status.ExpectReplicas != want {
			return fmt.Errorf("status %+v", e.Status)
		}
		return nil
	})
}

// wantReplicas fails where a Deployment is not at a number of replicas.
func (w *fixture) wantReplicas(name string, want int32) {
	w.T.Helper()
	if got, err := w.replicas(w.T.Context(), name); err != nil || got != want {
		w.T.Errorf("%s is at %d, %v; want %d", name, got, err, want)
	}
}

// TestPreviewShowsAndScalesNothing: the HPA scales a stand-in; a fixed number scales the target; switching either way leaves
// nothing behind and the replicas where they are.
func TestPreviewShowsAndScalesNothing(t *testing.T) {
	w := newFixture(t)
	metrics.setSharedLoad(w.Name, 900) // 120 % of 250m in each of three pods; the target is 60 %
	w.CreateAll(deployment("web", 3, 250), scaler("web", preview))
	w.awaitHPA("ehpa-web", "scales the stand-in", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if ref := h.Spec.ScaleTargetRef; ref.Kind != "Substitute" || ref.Name != "ehpa-web" {
			return fmt.Errorf("it scales %+v", ref)
		}
		return nil
	})
	e := w.awaitExpectedReplicas("web", 6)
	if *e.Status.CurrentReplicas != 3 || e.Status.Autoscaler != "HorizontalPodAutoscaler/ehpa-web" || e.Status.Winner != "resource.cpu" {
		t.Errorf("status %+v", e.Status)
	}
	w.wantReplicas("web", 3)

	t.Log("a fixed number is set")
	four := int32(4)
	w.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = &four })
	w.awaitReplicas("web", 4)
	w.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = nil })

	t.Log("Auto takes over with the same HPA")
	w.change("web", auto)
	w.AwaitGone(&autoscalingv1alpha1.Substitute{}, "ehpa-web")
	w.awaitHPA("ehpa-web", "scales the target", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.ScaleTargetRef.Kind != "Deployment" {
			return fmt.Errorf("it scales %+v", h.Spec.ScaleTargetRef)
		}
		return nil
	})
	w.awaitReplicas("web", 6)
	t.Log("and back")
	w.change("web", preview)
	w.awaitHPA("ehpa-web", "scales the stand-in again", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.ScaleTargetRef.Kind != "Substitute" {
			return fmt.Errorf("it scales %+v", h.Spec.ScaleTargetRef)
		}
		return nil
	})
	metrics.setSharedLoad(w.Name, 450)
	w.awaitExpectedReplicas("web", 3)
	w.wantReplicas("web", 6)
}

// TestForeignAutoscalersAreNeverFought: an HPA of somebody else is reported; a preview beside it is computed, and one that scales
// gives way, until it is told to take the HPA over.
func TestForeignAutoscalersAreNeverFought(t *testing.T) {
	w := newFixture(t)
	metrics.setPodUsage(w.Name, 300)
	two, percent := int32(2), int32(90)
	theirs := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		MinReplicas:    &two, MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{cpu()},
	}}
	theirs.Name = "theirs"
	theirs.Spec.Metrics[0].Resource.Target.AverageUtilization = &percent
	w.CreateAll(deployment("web", 3, 250), theirs, scaler("web", preview))

	w.awaitCondition("web", "Ready=True/PreviewComputed")
	e := w.awaitExpectedReplicas("web", 6)
	if e.Status.Autoscaler != "Preview" || e.Status.Winner != "resource.cpu" || e.Status.Why == "" {
		t.Errorf("status %+v", e.Status)
	}
	if p := proposal(e, "resource.cpu"); p.Replicas == nil || *p.Replicas != 6 || p.Current != "120" || p.Target != "60" {
		t.Errorf("proposals %+v", e.Status.Proposals)
	}
	w.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-web")
	w.wantReplicas("web", 3)

	t.Log("a preview does not set a fixed number against it")
	w.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = &two })
	w.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	w.change("web", func(e *ehpa) { e.Spec.SpecificReplicas = nil })

	t.Log("Auto gives way")
	w.change("web", auto)
	w.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	w.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-web")
	w.wantReplicas("web", 3)

	t.Log("unless it is told to take over: the HPA keeps its name")
	w.change("web", func(e *ehpa) {
		e.Annotations = map[string]string{autoscalingv1alpha1.AnnotationAdoptHPA: "theirs"}
	})
	w.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	w.awaitHPA("theirs", "taken over", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.MaxReplicas != 20 {
			return fmt.Errorf("spec %+v", h.Spec)
		}
		return nil
	})
	w.awaitReplicas("web", 20)

	t.Log("and it is given back as it was")
	w.change("web", func(e *ehpa) { delete(e.Annotations, autoscalingv1alpha1.AnnotationAdoptHPA) })
	w.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	h := w.awaitHPA("theirs", "given back", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.MaxReplicas != 3 || len(h.OwnerReferences) > 0 {
			return fmt.Errorf("%+v, spec %+v", h.ObjectMeta, h.Spec)
		}
		return nil
	})
	if *h.Spec.Metrics[0].Resource.Target.AverageUtilization != 90 || h.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec] != "" {
		t.Errorf("%+v %+v", h.ObjectMeta, h.Spec)
	}

	t.Log("when theirs goes, ours comes")
	if err := w.Delete(t.Context(), theirs, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	w.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	w.awaitHPA("ehpa-web", "made", func(*autoscalingv2.HorizontalPodAutoscaler) error { return nil })
}

// TestPausedScaledObject: one of KEDA's without an HPA is left alone too.
func TestPausedScaledObject(t *testing.T) {
	w := newFixture(t)
	metrics.setSharedLoad(w.Name, 300)
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
	if err := w.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Delete(context.WithoutCancel(t.Context()), definition) })
	paused := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"scaleTargetRef": map[string]any{"name": "web"}}}}
	paused.SetGroupVersionKind(kind)
	paused.SetNamespace(w.Name)
	paused.SetName("paused")
	w.Eventually("the kind is served", func(ctx context.Context) error { return w.Create(ctx, paused) })
	w.CreateAll(deployment("web", 2, 250), scaler("web"))
	e := w.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	wantMessage(t, e, "Ready", "ScaledObject paused scales the same target")
	w.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-web")
	w.change("web", preview)
	w.awaitCondition("web", "Ready=True/PreviewComputed")

	t.Log("KEDA is uninstalled, under a craned that knows its kind")
	w.change("web", auto)
	w.awaitCondition("web", "Ready=False/ForeignAutoscaler")
	if err := w.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	w.Eventually("its kind is not served", func(ctx context.Context) error {
		err := w.Get(ctx, client.ObjectKeyFromObject(definition), definition.DeepCopy())
		if apierrors.IsNotFound(err) {
			err = w.Get(ctx, client.ObjectKeyFromObject(paused), paused.DeepCopy())
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	w.change("web", func(e *ehpa) { e.Spec.MaxReplicas = 19 })
	w.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
}

// TestTwoAutoscalersOnOneTarget: the older one scales, the younger says so, and takes over when the older goes.
func TestTwoAutoscalersOnOneTarget(t *testing.T) {
	w := newFixture(t)
	metrics.setPodUsage(w.Name, 150)
	w.CreateAll(deployment("web", 2, 250), scaler("web"))
	w.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	second := scaler("zweite", func(e *ehpa) { e.Spec.ScaleTargetRef.Name = "web" })
	w.CreateAll(second)
	e := w.awaitCondition("zweite", "Ready=False/TargetTaken")
	if e.Status.ExpectReplicas != nil {
		t.Errorf("status %+v", e.Status)
	}
	w.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-zweite")
	w.change("zweite", preview)
	w.awaitCondition("zweite", "Ready=True/PreviewComputed")
	w.awaitExpectedReplicas("zweite", 2)
	w.change("zweite", auto)
	w.awaitCondition("zweite", "Ready=False/TargetTaken")
	first := scaler("web")
	first.Namespace = w.Name
	if err := w.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.awaitCondition("zweite", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	w.awaitHPA("ehpa-zweite", "made", func(*autoscalingv2.HorizontalPodAutoscaler) error { return nil })
	w.wantReplicas("web", 2)
}
