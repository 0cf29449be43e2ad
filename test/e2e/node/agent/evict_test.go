// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/e2e/node"
)

// evictRules evict batch pods while one of two uses more than 80 MiB of memory. Both are named, so that there is a measurement after one
// is gone.
//
//go:embed testdata/evict-rules.yaml
var evictRules string

// TestEvict checks that only a growing pod is evicted, with the action's grace period, and that new pods are kept away until the end of
// the cool-down.
func TestEvict(t *testing.T) {
	f := newFixture(t, node.Options{})
	f.apply(t, evictRules+batchMakesRoom)
	bystander := f.bystander(t)

	var batchPods []*corev1.Pod
	for _, p := range []struct{ name, class, mib string }{{"grows", "least", "160"}, {"keeps", "", "24"}} {
		pod := f.Pod(p.name, "memory-hog", []string{"-mib", p.mib, "-after", signal}, node.Resources("10m", "32Mi"), nil)
		pod.Labels = batch()
		pod.Spec.PriorityClassName = p.class
		batchPods = append(batchPods, f.Run(t, pod))
	}

	grows := batchPods[0]
	keeps := batchPods[1]
	f.deploy(t, "--enforce=evict,taint", "--evict-also=bare-pods", "--collect-interval=500ms")

	if f.tainted(t) {
		t.Fatal("a calm node has the taint, want none")
	}

	f.turn(t, keeps, true)
	taints := f.taints(t)
	graces := f.graces(t, grows)
	f.turn(t, grows, true)

	const bound = 2 * time.Minute
	select {
	case <-taints:
	case <-time.After(bound):
		t.Fatal("the node has no taint, want one while the rule fires")
	}

	select {
	case grace := <-graces:
		if grace != 7 {
			t.Errorf("evicted with %d s of grace, want 7, those of the action", grace)
		}
	case <-time.After(bound):
		t.Fatal("the pod was not evicted within the bound, want its eviction")
	}

	f.awaitEvent(t, "AvoidanceTriggered")
	f.Eventually(t, "the taint is gone", func() error {
		if f.tainted(t) {
			return fmt.Errorf("the node still has it")
		}

		return nil
	})

	f.awaitEvent(t, "RestoreTriggered")
	for _, p := range []*corev1.Pod{bystander, keeps} {
		now := f.Await(t, p, "is there", func(*corev1.Pod) bool { return true })
		if now.UID != p.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s has the status %+v, want it running without a restart", p.Name, now)
		}
	}
}

// graces returns the grace period with which a pod is deleted; 0 if the watch ends before.
func (f fixture) graces(t testing.TB, pod *corev1.Pod) <-chan int64 {
	t.Helper()

	return first(t, f.Client.CoreV1().Pods(pod.Namespace).Watch, "metadata.name="+pod.Name, func(p *corev1.Pod) (int64, bool) {
		if p.DeletionGracePeriodSeconds == nil {
			return 0, false
		}

		return *p.DeletionGracePeriodSeconds, true
	})
}

// taints signals that the node got the taint, even for a moment.
func (f fixture) taints(t testing.TB) <-chan bool {
	t.Helper()
	return first(t, f.Client.CoreV1().Nodes().Watch, "metadata.name="+f.Name(), func(n *corev1.Node) (bool, bool) { return isTainted(n), isTainted(n) })
}

// first returns the first value found in the objects of a watch, from their current state on.
func first[T, V any](t testing.TB, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), fields string, find func(*T) (V, bool)) <-chan V {
	t.Helper()

	w, err := begin(t.Context(), metav1.ListOptions{FieldSelector: fields})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(w.Stop)
	out := make(chan V, 1)
	go func() {
		defer close(out)

		for event := range w.ResultChan() {
			if o, ok := any(event.Object).(*T); ok {
				if v, found := find(o); found {
					out <- v
					return
				}
			}
		}
	}()

	return out
}

// awaitEvent waits for an event on the node.
func (f fixture) awaitEvent(t testing.TB, reason string) {
	t.Helper()

	f.Eventually(t, "event "+reason, func() error {
		events, err := f.Client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}

		var seen []string
		for i := range events.Items {
			if e := &events.Items[i]; e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == f.Name() {
				if e.Reason == reason {
					return nil
				}

				seen = append(seen, e.Reason)
			}
		}

		return fmt.Errorf("there are %s", seen)
	})
}

// tainted reports whether new pods are kept away from the node.
func (f fixture) tainted(t testing.TB) bool {
	t.Helper()

	n, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return isTainted(n)
}

func isTainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == ensurancev1alpha1.TaintKey })
}
