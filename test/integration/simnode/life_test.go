// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func deployment(namespace, name, pool string, replicas int32) *appsv1.Deployment {
	pod := podIn(namespace, name, pool, "100m", "64Mi")
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}
}

func TestDeploymentBecomesAvailableAndScalesDown(t *testing.T) {
	ns := namespaceFor(t)
	deployments := cluster.client.AppsV1().Deployments(ns)
	if _, err := deployments.Create(t.Context(), deployment(ns, "web", "general", 6), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	available := func(n int32) {
		eventually(t, fmt.Sprintf("%d available replicas", n), func(ctx context.Context) (bool, string) {
			d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}

			return d.Status.AvailableReplicas == n && d.Status.Replicas == n, fmt.Sprintf("%+v", d.Status)
		})
	}

	available(6)
	if _, err := deployments.Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	available(2)
	eventually(t, "the other pods are gone", func(ctx context.Context) (bool, string) {
		pods, err := cluster.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}

		return len(pods.Items) == 2, fmt.Sprint(len(pods.Items))
	})
}

func TestJobCompletesAndFails(t *testing.T) {
	ns := namespaceFor(t)
	for name, code := range map[string]string{"good": "0", "bad": "3"} {
		pod := podIn(ns, name, "general", "100m", "64Mi", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), Completions: new(int32(1)), Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"sim.crane.io/duration": "1s", "sim.crane.io/exit-code": code}},
				Spec:       pod.Spec,
			}},
		}

		if _, err := cluster.client.BatchV1().Jobs(ns).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	for name, want := range map[string]batchv1.JobConditionType{"good": batchv1.JobComplete, "bad": batchv1.JobFailed} {
		eventually(t, "job "+name, func(ctx context.Context) (bool, string) {
			job, err := cluster.client.BatchV1().Jobs(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}

			for _, c := range job.Status.Conditions {
				if c.Type == want && c.Status == corev1.ConditionTrue {
					return true, ""
				}
			}

			return false, fmt.Sprintf("%+v", job.Status)
		})
	}
}

func TestOOMKill(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "hungry", "general", "200m", "128Mi"))
	podUntil(t, ns, "hungry", "Ready", ready)
	cluster.load.use(ns, "app", 0.1, 300<<20)
	pod := podUntil(t, ns, "hungry", "OOMKilled twice", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount >= 1 &&
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil
	})

	last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last.Reason != "OOMKilled" || last.ExitCode != 137 {
		t.Errorf("last state %+v, want OOMKilled with 137", last)
	}

	podUntil(t, ns, "hungry", "CrashLoopBackOff", func(p *corev1.Pod) bool {
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "CrashLoopBackOff" && !ready(p)
	})
	cluster.load.use(ns, "app", 0.1, 20<<20)
	podUntil(t, ns, "hungry", "Ready again", ready)
	eventually(t, "an event tells of it", func(ctx context.Context) (bool, string) {
		events, err := cluster.client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=OOMKilling"})
		return err == nil && len(events.Items) > 0 && events.Items[0].InvolvedObject.Name == "hungry", fmt.Sprint(err)
	})
}

func TestMemoryPressureEvictsTheWorst(t *testing.T) {
	ns := namespaceFor(t)
	burstable := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = nil
	}
	create(t, podIn(ns, "modest", "small", "100m", "400Mi", burstable))

	create(t, podIn(ns, "greedy", "small", "100m", "100Mi", burstable, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "eater" }))
	podUntil(t, ns, "modest", "Ready", ready)
	podUntil(t, ns, "greedy", "Ready", ready)
	before := memoryPressure(t.Context(), t)
	cluster.load.use(ns, "app", 0.1, 350<<20)
	cluster.load.use(ns, "eater", 0.1, 700<<20)

	pod := podUntil(t, ns, "greedy", "evicted", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if pod.Status.Reason != "Evicted" || condition(pod, corev1.DisruptionTarget) == nil {
		t.Errorf("status %+v, want Evicted with DisruptionTarget", pod.Status)
	}

	// The node is under pressure for some seconds, which a slow test may miss; the transition time proves it.
	eventually(t, "MemoryPressure comes and goes", func(ctx context.Context) (bool, string) {
		c := memoryPressure(ctx, t)
		return c.Status == corev1.ConditionFalse && c.LastTransitionTime.After(before.LastTransitionTime.Time), fmt.Sprintf("%+v, before %+v", c, before)
	})
	podUntil(t, ns, "modest", "Ready, as it is within its request", ready)
}

func memoryPressure(ctx context.Context, t *testing.T) corev1.NodeCondition {
	t.Helper()

	node, err := cluster.client.CoreV1().Nodes().Get(ctx, "small", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeMemoryPressure {
			return c
		}
	}

	t.Fatal("the node has no condition MemoryPressure, want one")
	return corev1.NodeCondition{}
}

func TestEvictionAPI(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "guest", "general", "100m", "64Mi"))
	podUntil(t, ns, "guest", "Ready", ready)

	err := cluster.client.PolicyV1().Evictions(ns).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "guest"}})
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, "the pod goes", func(ctx context.Context) (bool, string) {
		_, err := cluster.client.CoreV1().Pods(ns).Get(ctx, "guest", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

func TestNodeFailureMovesPods(t *testing.T) {
	ns := namespaceFor(t)
	d := deployment(ns, "web", "frail", 2)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		d.Spec.Template.Spec.Tolerations = append(d.Spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1)),
		})
	}

	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: d.Spec.Selector,
	}}

	if _, err := cluster.client.AppsV1().Deployments(ns).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	placed := func(what string, ok func(byNode map[string]int) bool) {
		eventually(t, what, func(ctx context.Context) (bool, string) {
			pods, err := cluster.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}

			by := map[string]int{}
			for i := range pods.Items {
				if p := &pods.Items[i]; ready(p) && p.DeletionTimestamp == nil {
					by[p.Spec.NodeName]++
				}
			}

			return ok(by), fmt.Sprint(by)
		})
	}

	placed("one pod on each node", func(by map[string]int) bool {
		// If one of the nodes was briefly NotReady, both pods are on the other one and would stay there.
		for node, n := range by {
			if n == 2 {
				moveOne(t, ns, node)
			}
		}

		return by["frail"] == 1 && by["sound"] == 1
	})

	if err := cluster.fleet.FailNode("frail"); err != nil {
		t.Fatal(err)
	}

	placed("both pods on the sound node", func(by map[string]int) bool { return by["sound"] == 2 && by["frail"] == 0 })
	if err := cluster.fleet.RecoverNode("frail"); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the node is Ready and its old pod gone", func(ctx context.Context) (bool, string) {
		node, err := cluster.client.CoreV1().Nodes().Get(ctx, "frail", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}

		pods, err := cluster.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}

		return len(node.Spec.Taints) == 0 && len(pods.Items) == 2, fmt.Sprintf("taints %v, %d pods", node.Spec.Taints, len(pods.Items))
	})
}

// moveOne deletes one pod of a node, so that its replacement is scheduled.
func moveOne(t *testing.T, namespace, node string) {
	t.Helper()

	pods, err := cluster.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil || len(pods.Items) == 0 {
		t.Logf("pods of %s: %d, %v", node, len(pods.Items), err)
		return
	}

	if err := cluster.client.CoreV1().Pods(namespace).Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Log(err)
	}
}

func TestCrashAndSnapshot(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "web", "general", "100m", "64Mi"))
	podUntil(t, ns, "web", "Ready", ready)

	if err := cluster.fleet.KillContainer(ns, "web", "app", 2); err != nil {
		t.Fatal(err)
	}

	podUntil(t, ns, "web", "restarted", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p)
	})
	eventually(t, "the snapshot shows the container with a counter that moves", func(context.Context) (bool, string) {
		for _, c := range cluster.fleet.Snapshot() {
			if c.Pod.Namespace == ns {
				return c.Restarts == 1 && c.CPUSeconds > 0 && c.Reachable && time.Since(c.StartedAt) < time.Minute, fmt.Sprintf("%+v", c.Use)
			}
		}

		return false, "no container"
	})

	if err := cluster.fleet.KillContainer(ns, "web", "none", 1); err == nil {
		t.Error("no error for a missing container, want one")
	}
}
