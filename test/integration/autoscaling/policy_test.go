// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestMetricNamesPolicy verifies that the API server itself refuses metrics whose names would address another path, without a webhook.
func TestMetricNamesPolicy(t *testing.T) {
	admin, err := newAdmin()
	if err != nil {
		t.Fatal(err)
	}

	one := resource.MustParse("1")
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &one}
	pods := func(name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: name}, Target: average}}
	}
	external := func(name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: name}, Target: average}}
	}

	object := func(described, name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: described},
			Metric:          autoscalingv2.MetricIdentifier{Name: name}, Target: average,
		}}
	}

	create := func(ctx context.Context, metrics ...autoscalingv2.MetricSpec) error {
		return admin.Create(ctx, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "policy"},
			Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
				MaxReplicas:    3, ScaleStrategy: autoscalingv1alpha1.ScaleStrategyPreview, Metrics: metrics,
			},
		}, client.DryRunAll)
	}

	refused := func(err error) error {
		if err == nil || !strings.Contains(err.Error(), "crane-effectivehpa-metric-names") {
			return fmt.Errorf("not refused by the policy: %w", errors.Join(err, errors.New("want an error that names the policy")))
		}

		return nil
	}

	// A new policy takes effect some time after it was created.
	harness.Eventually(t.Context(), t, waitTimeout, "the policy is in force", func(ctx context.Context) error { return refused(create(ctx, external(".."))) })

	for name, metrics := range map[string][]autoscalingv2.MetricSpec{
		"pods":             {pods("../../victim/pods/*/m")},
		"pods, empty":      {pods("")},
		"second of two":    {pods("good"), external("../victim/queue_depth")},
		"escaped":          {external("..%2fvictim")},
		"object":           {object("web", "../../x")},
		"described object": {object("..", "x")},
	} {
		if err := refused(create(t.Context(), metrics...)); err != nil {
			t.Errorf("creating metrics of %s: %v", name, err)
		}
	}

	if err := create(t.Context(), pods("http:requests"), external("queue-depth.total"), object("web", "hits")); err != nil {
		t.Errorf("valid names: %v", err)
	}
	if err := create(t.Context()); err != nil {
		t.Errorf("no metrics: %v", err)
	}
}
