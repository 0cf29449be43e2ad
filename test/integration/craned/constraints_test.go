// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

func autoscaler(namespace, deployment string, percent int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment},
			MaxReplicas:    3,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
			}}},
		},
	}
}

// createOnlyNode creates the single node of the cluster, with 1 allocatable core and 1 GiB.
func createOnlyNode(t *testing.T, c client.Client, name string) {
	t.Helper()

	n := node(name, "small")
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), n) })
	before := n.DeepCopy()

	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi")}
	if err := c.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// TestNodeAndAutoscalerConstraints checks that a rule and the command line keep a request on which an HPA of others scales, and
// recommend the others, and that no request exceeds the largest node.
func TestNodeAndAutoscalerConstraints(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	createOnlyNode(t, c, "constraints-only")
	create(t, c, deployment("shop", "web"), statefulSet("shop", "db", "postgres"), autoscaler("shop", "web", 50), rule("constrained", "24h", "shop"))
	startCraned(t, prom.URL())
	awaitRule(t, c, "constrained", "RoundCompleted")

	recs, err := recommendations(t.Context(), c, "constrained")
	if err != nil {
		t.Fatal(err)
	}

	web := recs["shop/web"]
	got := requested(t, web.Status.RecommendedInfo)
	near(t, "cpu of web, on which the HPA scales", got[corev1.ResourceCPU], 1)
	near(t, "memory of web, on which no HPA scales", got[corev1.ResourceMemory], 300*mib*1.15)

	const want = "cpu stays 1 (an autoscaler acts at 50 % of the request, so both move together or not at all"
	if web.Status.Action != analysisv1alpha1.ActionPatch || !strings.Contains(web.Status.Description, want) {
		t.Errorf("%s: %s, want %s", web.Status.Action, web.Status.Description, want)
	}

	db := requested(t, recs["shop/db"].Status.RecommendedInfo)
	near(t, "cpu of db, larger than the node", db[corev1.ResourceCPU], 1)
	near(t, "memory of db, larger than the node", db[corev1.ResourceMemory], 1024*mib)

	if text := recs["shop/db"].Status.Description; !strings.Contains(text, "the largest node has 1 for pods") {
		t.Errorf("description of db: %s, want the size of the largest node", text)
	}

	out, code, errOut := crane(t, "--kubeconfig", control.Kubeconfig(), "-n", "shop", "--prometheus", prom.URL())
	if code != 0 {
		t.Fatalf("crane recommend: exit %d, want 0: %s", code, errOut)
	}

	for _, w := range out.Workloads {
		if cpu := w.Containers[0].CPU.Recommended.Request.Value; cpu != 1 {
			t.Errorf("%s: the command line recommends %v cores, want 1", w.Name, cpu)
		}
	}
}
