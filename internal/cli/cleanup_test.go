// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// TestCleanupNode checks which nodes get a pod, that a failed one is reported, and that no pod is left. The node tests run its content.
func TestCleanupNode(t *testing.T) {
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	a := node("a")
	a.Annotations = map[string]string{ensurancev1alpha1.AnnotationPredecessor: ensurancev1alpha1.PredecessorGocrane}
	clients := fake.NewClientset(a, node("b"))
	var ran []string

	clients.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.Name = cleanupPrefix + pod.Spec.NodeName
		pod.Status.Phase = corev1.PodSucceeded
		if pod.Spec.NodeName == "b" {
			pod.Status.Phase = corev1.PodFailed
		}

		ran = append(ran, pod.Spec.NodeName+" "+strings.Join(pod.Spec.Containers[0].Args, " "))
		return false, pod, nil
	})

	var out strings.Builder
	c := nodeCleanup{clients: clients, namespace: "crane-system", image: "agent:1", stateDir: "/var/lib/crane-agent", timeout: time.Minute, out: &out}

	err := c.run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "node b: pod crane-system/crane-cleanup-b failed") || strings.Contains(err.Error(), "node a") {
		t.Error(err)
	}

	const want = "a --cleanup --host-root=/host --state-dir=/host/var/lib/crane-agent"
	if len(ran) != 2 || ran[0] != want || !strings.HasPrefix(out.String(), "a: ") || strings.Count(out.String(), "a: CPU quotas that gocrane's agent left may still be there") != 1 {
		t.Errorf("ran %q and printed %q, want 2 pods, the first as %q, and a note on node a", ran, out.String(), want)
	}
	if left, err := clients.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("pods after the cleanup: %v, error %v, want none", left.Items, err)
	}
	if err := c.run(t.Context(), []string{"c"}); err == nil || !strings.Contains(err.Error(), "node c does not exist") || len(ran) != 2 {
		t.Errorf("run(c) = %v with %q, want an error that node c does not exist and no further pod", err, ran)
	}

	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: agentName, Namespace: "crane-system"}}
	if _, err := clients.AppsV1().DaemonSets("crane-system").Create(t.Context(), daemonSet, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := c.run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "remove it first") || len(ran) != 2 {
		t.Errorf("run beside running agents = %v with %q, want an error to remove them first and no pod", err, ran)
	}
}
