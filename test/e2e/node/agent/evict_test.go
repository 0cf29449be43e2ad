// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/e2e/node"
)

// evictRules evict batch pods while one of two uses more than 80 MiB of memory. The two are named both, so that there is a measurement
// when one is gone.
const evictRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: full}
spec:
  rules:
  - name: memory
    metricRule:
      name: container_mem_total_usage
      value: 80Mi
      selector:
        matchLabels: {ContainerName: main}
        matchExpressions: [{key: PodName, operator: In, values: [grows, keeps]}]
    avoidanceThreshold: 2
    restoreThreshold: 2
    actionName: make-room
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: make-room}
spec: {coolDownSeconds: 3, eviction: {terminationGracePeriodSeconds: 7}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec:
  allowedActions: [make-room]
  labelSelector: {matchLabels: {workload: batch}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: least}
value: -100
`

// TestEvict: a pod that grows is evicted with the grace period of the action, and no other is, though one could be; new pods are kept
// away from then on and for the action's cool-down.
func TestEvict(t *testing.T) {
	s := start(t, node.Options{})
	s.apply(t, evictRules)
	bystander := s.bystander(t)
	var batchPods []*corev1.Pod
	for _, p := range []struct{ name, class, mib string }{{"grows", "least", "160"}, {"keeps", "", "24"}} {
		pod := s.Pod(p.name, "memory-hog", []string{"-mib", p.mib, "-after", signal}, node.Resources("10m", "32Mi"), nil)
		pod.Labels, pod.Spec.PriorityClassName = batch(), p.class
		batchPods = append(batchPods, s.Run(t, pod))
	}
	grows, keeps := batchPods[0], batchPods[1]
	s.deploy(t, "--enforce=evict,taint", "--collect-interval=500ms")
	if s.tainted(t) {
		t.Fatal("a calm node has the taint")
	}
	s.turn(t, keeps, true)
	graces := s.graces(t, grows)
	s.turn(t, grows, true)
	s.Eventually(t, "the node has the taint", func() error {
		if !s.tainted(t) {
			return fmt.Errorf("pod grows: %v", grows.Status.Phase)
		}
		return nil
	})
	select {
	case grace, ok := <-graces:
		if !ok || grace != 7 {
			t.Errorf("evicted with %d s of grace (%t), want 7, those of the action", grace, ok)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("not evicted")
	}
	s.Eventually(t, "the taint is gone", func() error {
		if s.tainted(t) {
			return fmt.Errorf("the node still has it")
		}
		return nil
	})
	for _, p := range []*corev1.Pod{bystander, keeps} {
		now := s.Await(t, p, "is there", func(*corev1.Pod) bool { return true })
		if now.UID != p.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was touched: %+v", p.Name, now)
		}
	}
}

// graces returns the grace period with which a pod is deleted, once it is. The channel is closed without one where the watch ends.
func (s site) graces(t testing.TB, pod *corev1.Pod) <-chan int64 {
	t.Helper()
	w, err := s.Client.CoreV1().Pods(pod.Namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	out := make(chan int64, 1)
	go func() {
		defer close(out)
		for event := range w.ResultChan() {
			if p, ok := event.Object.(*corev1.Pod); ok && p.DeletionGracePeriodSeconds != nil {
				out <- *p.DeletionGracePeriodSeconds
				return
			}
		}
	}()
	return out
}

// tainted tells whether new pods are kept away from the node.
func (s site) tainted(t testing.TB) bool {
	t.Helper()
	n, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == ensurancev1alpha1.TaintKey })
}
