// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/scheduler/pluginconfig"
)

// TestHints checks that a pod is woken by events that can help it and by no others.
func TestHints(t *testing.T) {
	result := func(cpus int) option {
		return annotated(topology.AnnotationPodTopologyResult, fmt.Sprintf(`[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"%d"}}}]`, cpus))
	}
	holder := func(name string, cpus int) *corev1.Pod { return newPod(name, fmt.Sprint(cpus), on("n"), result(cpus)) }
	f := newPlugin(t, nrt("n", 4), nrt("roomy", 8))
	f.info("n").add(holder("a", 1), holder("b", 3))

	pod := newPod("p", "3")
	if _, s := f.filter(t, pod, "n"); s.Code() != fwk.Unschedulable {
		t.Fatalf("Filter of 3 CPUs on a full node = %v, want Unschedulable", s)
	}

	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	other := annotated(topology.AnnotationPodTopologyAwareness, "false")
	rejecting := newPlugin(t)

	rejecting.missing = pluginconfig.MissingTopologyReject
	for _, c := range []struct {
		what          string
		hint          fwk.QueueingHintFn
		before, after any
		want          fwk.QueueingHint
	}{
		{"a pod that shares CPUs leaves", f.podDeleted, newPod("x", "500m", on("n")), nil, fwk.QueueSkip},
		{"a pod leaves whose zones are too few", f.podDeleted, holder("a", 1), nil, fwk.QueueSkip},
		{"another: together they are enough", f.podDeleted, holder("b", 3), nil, fwk.Queue},
		{"a pod that was on no node", f.podDeleted, newPod("x", "3"), nil, fwk.QueueSkip},
		{"the pod itself", f.podDeleted, newPod("p", "3", on("n")), nil, fwk.QueueSkip},
		{"something else", f.podDeleted, nil, nil, fwk.Queue},
		{"it asks for less", f.podUpdated, newPod("p", "3"), newPod("p", "2"), fwk.Queue},
		{"it may be spread", f.podUpdated, newPod("p", "3"), newPod("p", "3", other), fwk.Queue},
		{"it shares", f.podUpdated, newPod("p", "3"), newPod("p", "3", annotated(topology.AnnotationPodCPUPolicy, "none")), fwk.Queue},
		{"it has a new label", f.podUpdated, newPod("p", "3"), newPod("p", "3", annotated("x", "y")), fwk.QueueSkip},
		{"another asks for less", f.podUpdated, newPod("q", "3"), newPod("q", "2"), fwk.QueueSkip},
		{"a node with room", f.nodeAdded, nil, node("roomy"), fwk.Queue},
		{"a node of which nothing is known", f.nodeAdded, nil, node("new"), fwk.Queue},
		{"such a node where these are refused", rejecting.nodeAdded, nil, node("new"), fwk.QueueSkip},
		{"a node's taints change", f.nodeAdded, node("roomy"), node("roomy"), fwk.QueueSkip},
	} {
		got, err := c.hint(klog.Background(), pod, c.before, c.after)
		if err != nil || got != c.want {
			t.Errorf("%s: hint = %v, %v, want %v", c.what, got, err, c.want)
		}
	}

	events, err := f.EventsToRegister(t.Context())
	if err != nil {
		t.Fatalf("EventsToRegister: %v, want no error", err)
	}

	for _, e := range events {
		if e.QueueingHintFn == nil {
			t.Errorf("EventsToRegister lists %v without a hint, want one for each event", e.Event)
		}
	}
}

// TestTopologyWakes checks that a changed NodeResourceTopology wakes the pods that it helps, once, and no others.
func TestTopologyWakes(t *testing.T) {
	f := newPlugin(t, nrt("n", 2))
	log := klog.Background()

	for _, name := range []string{"three", "five"} {
		cpus := map[string]string{"three": "3", "five": "5"}[name]
		if _, s := f.filter(t, newPod(name, cpus), "n"); s.IsSuccess() {
			t.Fatalf("Filter of %s CPUs on a node of 2 succeeded, want a rejection", cpus)
		}
	}

	for _, c := range []struct {
		what   string
		change func()
		want   string
	}{
		{"the same again", func() { f.core.topologyChanged(log, nrt("n", 2)) }, "[]"},
		{"another node, as small", func() { f.core.topologyChanged(log, nrt("m", 2)) }, "[]"},
		{"room for one", func() { f.core.topologyChanged(log, nrt("n", 4)) }, "[default/three]"},
		{"no more than before", func() { f.core.topologyChanged(log, nrt("n", 3)) }, "[]"},
		{"the other node is no longer known", func() { f.core.topologyDeleted(log, "m") }, "[default/five default/three]"},
		{"it goes once more", func() { f.core.topologyDeleted(log, "m") }, "[]"},
		{"the kubelet takes over", func() { f.core.topologyChanged(log, kubelets(nrt("n", 3))) }, "[default/five]"},
	} {
		f.queue.woken = nil
		c.change()

		if len(f.queue.woken) == 2 && f.queue.woken[0] > f.queue.woken[1] {
			f.queue.woken[0], f.queue.woken[1] = f.queue.woken[1], f.queue.woken[0]
		}
		if got := fmt.Sprint(f.queue.woken); got != c.want {
			t.Errorf("%s: woke %s, want %s", c.what, got, c.want)
		}
	}

	// Deleted pods and pods placed by others are removed.
	h := f.core.podHandler(log)
	h.OnDelete(newPod("three", "3"))
	h.OnUpdate(newPod("five", "5"), newPod("five", "5", on("m")))

	if n := len(f.core.waiting.pods); n != 0 {
		t.Errorf("%d pods wait after one was deleted and one placed, want 0", n)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	w := newWaiting()
	for i := range maxWaiting + 10 {
		w.add(waiter{pod: newPod(fmt.Sprint(i), "1")})
	}

	if len(w.pods) != maxWaiting {
		t.Errorf("%d pods wait, want %d", len(w.pods), maxWaiting)
	}
}

// TestSignature checks that pods have equal signatures exactly if they get equal answers.
func TestSignature(t *testing.T) {
	f := newPlugin(t)
	sign := func(p *corev1.Pod) string {
		fragments, s := f.SignPod(t.Context(), p)
		if !s.IsSuccess() {
			t.Fatalf("SignPod of %s = %v, want success", p.Name, s)
		}

		out, err := json.Marshal(fragments)
		if err != nil {
			t.Fatalf("encoding the signature of %s: %v", p.Name, err)
		}

		return string(out)
	}

	same := sign(newPod("a", "2"))
	if sign(newPod("b", "2", annotated("x", "y"))) != same || sign(newPod("c", "2", ownedBy("ReplicaSet"))) != same {
		t.Error("SignPod differs for pods with equal requests, want equal signatures")
	}

	for what, p := range map[string]*corev1.Pod{
		"more":        newPod("a", "3"),
		"spread":      newPod("a", "2", annotated(topology.AnnotationPodTopologyAwareness, "0")),
		"one zone":    newPod("a", "2", annotated(topology.AnnotationPodTopologyAwareness, "t")),
		"shared":      newPod("a", "2", annotated(topology.AnnotationPodCPUPolicy, "none")),
		"a DaemonSet": newPod("a", "2", ownedBy("DaemonSet")),
	} {
		if sign(p) == same {
			t.Errorf("%s: SignPod = %s as for the plain pod, want another signature", what, same)
		}
	}
}
