// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"crane.io/crane/pkg/rightsize"
)

func ofPod(name corev1.ResourceName, percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

func ofContainer(container string, name corev1.ResourceName, percent int32) autoscalingv2.MetricSpec {
	m := ofPod(name, percent)
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Container: container, Name: name, Target: m.Resource.Target,
	}}
}

func hpa(namespace, name, apiVersion, kind string, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: "web"}, Metrics: metrics,
		},
	}
}

func TestConstraints(t *testing.T) {
	absolute := autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("1Gi"))},
	}}
	external := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType}
	wide := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "wide"}, Status: corev1.NodeStatus{
		Capacity: list("cpu", "16", "memory", "16Gi"), Allocatable: list("cpu", "15500m", "memory", "14Gi"),
	}}

	deep := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "deep"}, Status: corev1.NodeStatus{Allocatable: list("cpu", "4", "memory", "60Gi")}}
	lister, _ := newLister(t, 1, interceptor.Funcs{}, wide, deep, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joins"}},
		hpa("shop", "a", "apps/v1beta2", "Deployment", ofPod("cpu", 80), ofContainer("app", "cpu", 60), ofContainer("app", "memory", 90), absolute, external),
		hpa("shop", "b", "apps/v1", "Deployment", ofPod("cpu", 95)),
		hpa("shop", "c", "apps/v1", "StatefulSet", absolute),
		hpa("bank", "a", "apps/v1", "Deployment", ofPod("nvidia.com/gpu", 50)),
	)

	got, err := lister.Constraints(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	if got.MaxCPU != 15500 || got.MaxMemory != 60<<30 {
		t.Errorf("the largest node has %d, %d, want 15500 and %d", got.MaxCPU, got.MaxMemory, 60<<30)
	}

	web := Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	for name, c := range map[string]struct {
		ref       Ref
		container string
		want      *rightsize.HPA
	}{
		"metrics of pod and container": {web, "app", &rightsize.HPA{CPUUtilization: 0.6, MemoryUtilization: 0.9}},
		"another container":            {web, "side", &rightsize.HPA{CPUUtilization: 0.8}},
		"absolute values":              {Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web"}, "app", nil},
		"another namespace":            {Ref{Namespace: "bank", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, "app", nil},
		"another group":                {Ref{Namespace: "shop", APIVersion: "other/v1", Kind: "Deployment", Name: "web"}, "app", nil},
	} {
		if diff := cmp.Diff(c.want, got.UtilizationTargets(c.ref, c.container)); diff != "" {
			t.Errorf("%s: UtilizationTargets (-want +got):\n%s", name, diff)
		}
	}

	if (Constraints{}).UtilizationTargets(web, "app") != nil {
		t.Error("UtilizationTargets of no constraints has some, want nil")
	}

	one, err := lister.Constraints(t.Context(), []string{"bank"})
	if err != nil || one.UtilizationTargets(web, "app") != nil || one.MaxCPU == 0 {
		t.Errorf("Constraints of bank = %+v, %v, want nodes and no targets of shop", one, err)
	}
}

func TestConstraints_Errors(t *testing.T) {
	for _, kind := range []string{"*v1.NodeList", "*v2.HorizontalPodAutoscalerList"} {
		boom := errors.New("forbidden")
		lister, _ := newLister(t, 0, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if fmt.Sprintf("%T", l) == kind {
				return boom
			}

			return c.List(ctx, l, opts...)
		}})

		if _, err := lister.Constraints(t.Context(), nil); !errors.Is(err, boom) {
			t.Errorf("Constraints where listing %s fails: %v, want %v", kind, err, boom)
		}
	}
}
