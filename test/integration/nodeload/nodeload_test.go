// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const header = "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\n"

// policy reads two metrics every second.
const policy = header + `spec:
  syncPolicy:
  - {name: cpu_usage_avg_5m, period: 1s, sampleTime: timestamp(cpu_usage_avg_5m)}
  - {name: mem_usage_avg_5m, period: 1s, query: "100 * mem_used_ratio"}
  predicate:
  - {name: cpu_usage_avg_5m, maxLimitPecent: 0.65}
  priority:
  - {name: cpu_usage_avg_5m, weight: 1}
  hotValue:
  - {timeRange: 5m, count: 2}
`

const cpu = "cpu_usage_avg_5m"

// TestNodesCarryTheirLoad covers the path from Prometheus to annotations with every kind of node and of invalid sample.
func TestNodesCarryTheirLoad(t *testing.T) {
	c := newClient(t)
	began := time.Now()
	const old = "0.11111,2024-01-01T00:00:00Z"
	makeNode(t, c, "by-name", map[string]string{cpu: "garbage,,", "mine": "stays"})
	makeNode(t, c, "by-v4", nil, "10.1.1.1")
	makeNode(t, c, "by-v6", nil, "fd00::7")
	makeNode(t, c, "nan", map[string]string{cpu: old})
	makeNode(t, c, "twice", map[string]string{cpu: old}, "10.1.1.2")
	makeNode(t, c, "unknown", map[string]string{cpu: old})
	prom := servePrometheus(t)

	samples := func(v4 float64) []sample {
		return []sample{
			{10, []string{"instance", "by-name"}},
			{v4, []string{"instance", "10.1.1.1:9100"}},
			{30, []string{"instance", "[fd00::7]:9100"}},
			{math.NaN(), []string{"instance", "nan"}},
			{40, []string{"instance", "10.1.1.2:9100", "replica", "a"}},
			{50, []string{"instance", "10.1.1.2:9100", "replica", "b"}},
		}
	}

	prom.set(t, cpu, samples(20)...)
	prom.set(t, "mem_used_ratio", sample{0.5, []string{"instance", "pod-1", "node", "by-name"}})
	p := startCraned(t, prom.URL(), policy, "--controllers=nodeload")
	awaitLoad(t, c, "by-name", cpu, "0.10000")
	awaitLoad(t, c, "by-name", "mem_usage_avg_5m", "0.50000")

	awaitLoad(t, c, "by-v4", cpu, "0.20000")
	awaitLoad(t, c, "by-v6", cpu, "0.30000")
	awaitEvent(t, c, "ConfigMap", "crane-node-load-policy", "SampleTimeUnknown", "mem_usage_avg_5m")
	awaitEvent(t, c, "Node", "nan", "LoadUnknown", "not a number")
	awaitEvent(t, c, "Node", "twice", "LoadUnknown", "two series")
	awaitEvent(t, c, "Node", "unknown", "LoadUnknown", "no series")

	for _, name := range []string{"nan", "twice", "unknown"} {
		if n, err := getNode(t.Context(), c, name); err != nil || n.Annotations[cpu] != old {
			t.Errorf("%s carries %q, want what it had; %v", name, n.Annotations[cpu], err)
		}
	}

	one, err := getNode(t.Context(), c, "by-name")
	if err != nil || one.Annotations["mine"] != "stays" {
		t.Errorf("annotations of others: %v, %v, want them kept", one.Annotations, err)
	}

	stamp := strings.SplitAfter(one.Annotations[cpu], ",")[1]
	if at, err := time.Parse(time.RFC3339, stamp); err != nil || at.Before(began.Truncate(time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("the time %q, %v, want UTC between %s and now", stamp, err, began.UTC())
	}

	owners := map[string]bool{}
	for _, f := range one.ManagedFields {
		owners[f.Manager] = true
	}

	if !owners["craned-nodeload"] {
		t.Errorf("field managers %v, want craned-nodeload", owners)
	}

	t.Run("only a material change is written", func(t *testing.T) {
		before := version(t, c, "by-name")
		p.awaitRounds(t, 3)
		prom.set(t, cpu, samples(21)...)
		p.awaitRounds(t, 3)
		awaitLoad(t, c, "by-v4", cpu, "0.20000")
		prom.set(t, cpu, samples(25)...)
		awaitLoad(t, c, "by-v4", cpu, "0.25000")

		if after := version(t, c, "by-name"); after != before {
			t.Errorf("a node with constant load has version %s, want %s as before", after, before)
		}
	})

	t.Run("hot value", func(t *testing.T) {
		bindPods(t, c, "by-v6", 5)
		awaitLoad(t, c, "by-v6", "node_hot_value", "2")
	})
	t.Run("Prometheus gone and back", func(t *testing.T) {
		if err := prom.Stop(); err != nil {
			t.Fatal(err)
		}

		awaitEvent(t, c, "ConfigMap", "crane-node-load-policy", "LoadNotRead", cpu)
		if n, err := getNode(t.Context(), c, "by-v4"); err != nil || !strings.HasPrefix(n.Annotations[cpu], "0.25000,") {
			t.Errorf("without Prometheus the node carries %q, %v, want the last load, 0.25000", n.Annotations[cpu], err)
		}
		if err := prom.Start(); err != nil {
			t.Fatal(err)
		}

		prom.set(t, cpu, samples(60)...)
		awaitLoad(t, c, "by-v4", cpu, "0.60000")
	})

	t.Run("a bad policy leaves the old in force", func(t *testing.T) {
		p.write(t, strings.Replace(policy, "maxLimitPecent", "maxLimitPercent", 1))
		awaitEvent(t, c, "ConfigMap", "crane-node-load-policy", "PolicyRefused", "unknown field")
		p.write(t, "")
		awaitEvent(t, c, "ConfigMap", "crane-node-load-policy", "PolicyRefused", "the file is empty")

		eventually(t, "the policy is not valid by the metric", func(ctx context.Context) error {
			v, err := p.Metric(ctx, "crane_nodeload_policy_valid")
			if err == nil && v != 0 {
				err = fmt.Errorf("it is %v", v)
			}

			return err
		})

		prom.set(t, cpu, samples(40)...)
		awaitLoad(t, c, "by-v4", cpu, "0.40000")
		p.write(t, strings.Replace(policy, cpu+", period", "cpu_other, query: "+cpu+", period", 1))
		awaitLoad(t, c, "by-v4", "cpu_other", "0.40000")
		p.awaitMetric(t, "crane_nodeload_policy_valid", 1)
	})
}

// TestTaint verifies on a real API server that craned taints a loaded node with its own rights and removes the taint.
func TestTaint(t *testing.T) {
	c := newClient(t)
	makeNode(t, c, "loaded", nil)
	prom := servePrometheus(t)
	prom.set(t, cpu, sample{72, []string{"instance", "loaded"}})
	const marked = header + `spec:
  syncPolicy:
  - {name: cpu_usage_avg_5m, period: 1s, sampleTime: timestamp(cpu_usage_avg_5m)}
  waterMarks:
    cpu: {low: 0.3, schedule: 0.75, evict: 0.9}
`

	startCraned(t, prom.URL(), marked, "--controllers=nodeload", "--node-load-taint-above=0.9")
	tainted := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			n, err := getNode(ctx, c, "loaded")
			if err != nil {
				return err
			}

			if got := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == "status-taint.cluster-autoscaler.kubernetes.io/crane-load" && t.Effect == corev1.TaintEffectNoSchedule
			}); got != want {
				return fmt.Errorf("taints %v", n.Spec.Taints)
			}

			return nil
		}
	}

	eventually(t, "the loaded node is tainted", tainted(true))
	prom.set(t, cpu, sample{40, []string{"instance", "loaded"}})
	eventually(t, "the taint is removed", tainted(false))
}

func version(t *testing.T, c client.Client, node string) string {
	t.Helper()

	n, err := getNode(t.Context(), c, node)
	if err != nil {
		t.Fatal(err)
	}

	return n.ResourceVersion
}

// bindPods binds pods to a node like a scheduler.
func bindPods(t *testing.T, c client.Client, node string, n int) {
	t.Helper()

	makeServiceAccount(t, c, "default")
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("bound-", i)},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}

		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), pod) })
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		if err := c.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
			t.Fatal(err)
		}
	}
}

// makeServiceAccount creates a namespace's service account in place of its controller.
func makeServiceAccount(t *testing.T, c client.Client, namespace string) {
	t.Helper()

	err := c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

// TestRefusesABadPolicyAtStart: craned exits with an error that contains the path of the field.
func TestRefusesABadPolicyAtStart(t *testing.T) {
	out, err := runToEnd(t, strings.Replace(policy, "weight: 1", "weight: 0", 1))
	if err == nil || !strings.Contains(out, "spec.priority") {
		t.Errorf("craned ended with %v, want an error with spec.priority: %s", err, out)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("craned did not end within the bound, want its end")
	}
}
