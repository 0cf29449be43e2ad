// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/nodeload"
)

const marked = header + `spec:
  syncPolicy:
  - {name: cpu_usage_avg_5m, period: 1s}
  waterMarks:
    cpu: {low: 0.3, schedule: 0.7, evict: 0.85}
`

// use returns the series of a pod that has used some cores and a gibibyte for hours.
func use(namespace, pod string, cores float64) []promserver.Series {
	of := func(metric string, value func(i int) float64) promserver.Series {
		return promserver.Series{
			Labels: labels.FromStrings("__name__", metric, "namespace", namespace, "pod", pod, "container", "c", "image", "i"),
			Fill: func(dst []float64, at int) {
				for i := range dst {
					dst[i] = value(at + i)
				}
			},
		}
	}

	return []promserver.Series{
		of("container_cpu_usage_seconds_total", func(i int) float64 { return float64(i) * 15 * cores }),
		of("container_memory_rss", func(int) float64 { return 1 << 30 }),
	}
}

// percent returns the series of a node with constant load.
func percent(node string, value float64) promserver.Series {
	return promserver.Series{Labels: labels.FromStrings("__name__", cpu, "instance", node), Fill: func(dst []float64, _ int) {
		for i := range dst {
			dst[i] = value
		}
	}}
}

// TestRebalancing: a dry run only emits events; the real run moves the pod that may be evicted, within its budget, and
// keeps the one whose budget allows no disruption.
func TestRebalancing(t *testing.T) {
	c := newClient(t)
	const ns = "rebalance"
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}

	makeServiceAccount(t, c, ns)
	makeNode(t, c, "hot", nil)
	makeNode(t, c, "idle", nil)
	makeNode(t, c, "tainted", nil)
	taint(t, c, "tainted")
	runPods(t, c, ns, "guarded", "hot", 2)

	runPods(t, c, ns, "free", "hot", 2)
	makeBudget(t, c, ns, "guarded", 0)
	makeBudget(t, c, ns, "free", 1)
	prom := servePrometheus(t, slices.Concat(use(ns, "guarded-0", 2.6), use(ns, "guarded-1", 2.6), use(ns, "free-0", 2), use(ns, "free-1", 2),
		[]promserver.Series{percent("hot", 95), percent("idle", 10), percent("tainted", 5)})...)
	flags := []string{"--controllers=nodeload,rebalance", "--rebalance-interval=1s", "--rebalance-rounds=2"}

	left := func(ctx context.Context) (names []string, err error) {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return nil, err
		}

		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				names = append(names, list.Items[i].Name)
			}
		}

		return names, nil
	}

	t.Run("dry run", func(t *testing.T) {
		p := startCraned(t, prom.URL(), marked, flags...)
		eventually(t, "a pod that would be moved", func(ctx context.Context) error {
			if v, err := p.Metric(ctx, `crane_rebalance_moves_total{resource="cpu",result="dry-run"}`); err != nil || v != 1 {
				return fmt.Errorf("%v moves, %w", v, err)
			}

			return wouldMove(ctx, c)
		})

		if names, err := left(t.Context()); err != nil || len(names) != 4 {
			t.Errorf("pods %v, %v, want 4", names, err)
		}
	})

	t.Run("for real", func(t *testing.T) {
		p := startCraned(t, prom.URL(), marked, append(flags, "--rebalance-dry-run=false", "--rebalance-cool-down=2s")...)
		p.awaitMetric(t, `crane_rebalance_moves_total{resource="cpu",result="evicted"}`, 1)
		var names []string
		eventually(t, "one pod is gone", func(ctx context.Context) (err error) {
			if names, err = left(ctx); err == nil && len(names) != 3 {
				err = fmt.Errorf("there are %v", names)
			}

			return err
		})

		idle, err := getNode(t.Context(), c, "idle")
		if err != nil || !strings.Contains(idle.Annotations[nodeload.HoldsKey], ns+"/ReplicaSet/free") {
			t.Errorf("the target holds %q for the replacement, %v, want one of workload free", idle.Annotations[nodeload.HoldsKey], err)
		}

		// Workload free has one pod left and its budget is used up; the budget of guarded allows no disruption.
		awaitEvent(t, c, "Node", "hot", "RebalanceBlocked", "its disruption budget allows none")
		awaitEvent(t, c, "Node", "hot", "RebalanceBlocked", "no other pod of its workload is ready")

		if names, err := left(t.Context()); err != nil || len(names) != 3 {
			t.Errorf("pods %v, %v, want 3", names, err)
		}
	})
}

// wouldMove returns an error unless a dry run emitted an event on either pod of workload free.
func wouldMove(ctx context.Context, c client.Client) error {
	var list corev1.EventList
	if err := c.List(ctx, &list, client.InNamespace("rebalance")); err != nil {
		return err
	}

	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == "RebalanceDryRun" && e.InvolvedObject.Kind == "Pod" {
			if e.InvolvedObject.Name != "free-0" && e.InvolvedObject.Name != "free-1" {
				return fmt.Errorf("told on %s: %s", e.InvolvedObject.Name, e.Message)
			}

			return nil
		}
	}

	return errors.New("no event")
}

func taint(t *testing.T, c client.Client, name string) {
	t.Helper()

	n, err := getNode(t.Context(), c, name)
	if err != nil {
		t.Fatal(err)
	}

	n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	if err := c.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// runPods creates a ReplicaSet with running pods on a node.
func runPods(t *testing.T, c client.Client, namespace, name, node string, n int) {
	t.Helper()

	match := map[string]string{"app": name}
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64), NodeName: node, SchedulerName: "crane-scheduler",
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}},
	}

	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: match}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: match}, Spec: spec,
		}},
	}

	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}

	started := metav1.NewTime(time.Now().Add(-2 * time.Hour).Truncate(time.Second))
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i), Labels: match,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			},
			Spec: spec,
		}

		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := c.Delete(context.WithoutCancel(t.Context()), pod); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})

		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &started, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}

		if err := c.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
}

// makeBudget creates a PodDisruptionBudget with the status that its controller sets.
func makeBudget(t *testing.T, c client.Client, namespace, app string, allowed int32) {
	t.Helper()

	one := intstr.FromInt32(1)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}

	if err := c.Create(t.Context(), pdb); err != nil {
		t.Fatal(err)
	}

	pdb.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: pdb.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 2 - allowed, ExpectedPods: 2,
	}

	if err := c.Status().Update(t.Context(), pdb); err != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
}
