// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/nodeload"
)

func tombstone(pod *corev1.Pod) any {
	return cache.DeletedFinalStateUnknown{Key: pod.Namespace + "/" + pod.Name, Obj: pod}
}

// TestNodeHint checks that a pod is queued when a node that was closed for it has opened, and not otherwise.
func TestNodeHint(t *testing.T) {
	hot := newNode("hot", loadAnnotations(0.8, 0.2, start()))
	cool := newNode("cool", loadAnnotations(0.2, 0.2, start()))
	b := newFixture(t, nodeload.Strategy{}, hot, cool)
	pod := newPod("web", "100m", "1Gi")
	stranger := newPod("other", "100m", "1Gi")

	if _, reasons, _ := b.schedule(pod); len(reasons) != 1 {
		t.Fatal(reasons)
	}

	relabelled := newNode("cool", loadAnnotations(0.1, 0.2, start()))
	for _, c := range []struct {
		name     string
		pod      *corev1.Pod
		old, new any
		want     fwk.QueueingHint
	}{
		{"as hot as before", pod, hot, newNode("hot", loadAnnotations(0.79, 0.2, start())), fwk.QueueSkip},
		{"cooled down", pod, hot, newNode("hot", loadAnnotations(0.3, 0.2, start())), fwk.Queue},
		{"cooled down, but not for this pod", newPod("web", "9", "1Gi"), hot, newNode("hot", loadAnnotations(0.5, 0.2, start())), fwk.QueueSkip},
		{"its load is unreadable now", pod, hot, newNode("hot", nil), fwk.Queue},
		{"one that was open all the time", pod, cool, relabelled, fwk.QueueSkip},
		{"a new node", pod, nil, newNode("new", nil), fwk.Queue},
		{"a new hot node", pod, nil, newNode("new", loadAnnotations(0.9, 0.2, start())), fwk.QueueSkip},
		{"a pod of which nothing is known", stranger, cool, relabelled, fwk.Queue},
		{"not a node", pod, nil, "node", fwk.QueueSkip},
	} {
		if got, err := b.nodeHint(klog.Background(), c.pod, c.old, c.new); got != c.want || err != nil {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}

	// In a later attempt the node is open; a later attempt of another pod may find it closed again.
	b.replace(newNode("hot", loadAnnotations(0.3, 0.2, start())))
	b.infos = append(b.infos, &nodeInfo{node: newNode("late", loadAnnotations(0.9, 0.2, start()))})
	b.schedule(pod)

	if got, _ := b.nodeHint(klog.Background(), pod, hot, newNode("hot", loadAnnotations(0.2, 0.2, start()))); got != fwk.QueueSkip {
		t.Errorf("a node that was open in the last attempt: %v", got)
	}
}

func TestPodHint(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.4, 0.2, start())), newNode("b", loadAnnotations(0.9, 0.2, start())))
	coming := newPod("coming", "2", "1Gi")
	waiting := newPod("waiting", "1", "1Gi")

	if b.placePod(coming) != "a" {
		t.Fatal("not placed")
	}

	if b.placePod(waiting) != "" {
		t.Fatal("placed although a has no room")
	}

	skip := func(name string, gone *corev1.Pod) {
		if got, _ := b.podHint(klog.Background(), waiting, gone, nil); got != fwk.QueueSkip {
			t.Errorf("%s: %v", name, got)
		}
	}

	skip("a pod that was nowhere", newPod("x", "1", "1Gi"))
	skip("a pod of a node that stays hot", bindTo(newPod("x", "1", "1Gi"), "b"))
	skip("a pod of an unknown node", bindTo(newPod("x", "1", "1Gi"), "c"))

	if got, _ := b.podHint(klog.Background(), waiting, bindTo(coming, "a"), nil); got != fwk.Queue {
		t.Errorf("a pod that was on its way is gone: %v", got)
	}
	if got, _ := b.podHint(klog.Background(), waiting, waiting, waiting); got != fwk.Queue {
		t.Errorf("the pod itself asks for less: %v", got)
	}
	if got, _ := b.podHint(klog.Background(), waiting, coming, coming); got != fwk.QueueSkip {
		t.Errorf("another pod asks for less: %v", got)
	}

	if b.placePod(waiting) != "a" || b.pods.rejected.Len() != 0 {
		t.Errorf("not placed after all, %d rejected", b.pods.rejected.Len())
	}
}

func TestEventsToRegister(t *testing.T) {
	events, err := (&Plugin{}).EventsToRegister(t.Context())
	if err != nil || len(events) == 0 {
		t.Fatal(events, err)
	}

	var taint bool
	for _, e := range events {
		if e.QueueingHintFn == nil {
			t.Errorf("%v has no hint", e.Event)
		}
		taint = taint || e.Event.Resource == fwk.Node && e.Event.ActionType&fwk.UpdateNodeTaint != 0
	}

	if !taint {
		t.Error("kube-scheduler would add taint updates without a hint")
	}
}

// TestEventsAreBounded checks that a burst of placements beside hot nodes writes a burst of events and then one per
// second.
func TestEventsAreBounded(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("cool", loadAnnotations(0.01, 0.01, start())), newNode("hot", loadAnnotations(0.9, 0.2, start())))
	for i := range 3 * eventBurst {
		b.placePod(newPod(fmt.Sprint("web-", i), "1m", "1Mi"))
	}

	if len(b.events.notes) != eventBurst {
		t.Fatalf("%d events", len(b.events.notes))
	}

	if want := ReasonLoadAvoided + ": 1 of 2 nodes had too much load for this pod, which is expected to use 1m CPU and 0 MiB; placed on cool"; b.events.notes[0] != want {
		t.Errorf("%q, want %q", b.events.notes[0], want)
	}

	b.clock.Step(time.Second)
	b.placePod(newPod("late", "1m", "1Mi"))
	b.placePod(newPod("later", "1m", "1Mi"))

	if len(b.events.notes) != eventBurst+1 {
		t.Errorf("%d events after another second", len(b.events.notes))
	}
}

// TestRetryAfterNewPolicy checks that rejected pods are retried after a new policy, and no others.
func TestRetryAfterNewPolicy(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("hot", loadAnnotations(0.8, 0.2, start())))
	waiting := newPod("waiting", "100m", "1Gi")
	b.retry()
	var got map[string]*corev1.Pod
	b.activate = func(pods map[string]*corev1.Pod) { got = pods }
	o := &policyObserver{log: logr.Discard(), events: b.events, plugins: b.peers}
	o.PolicyLoaded(b.policies.policy)

	if got != nil {
		t.Errorf("%v are tried again, and nobody waits", got)
	}

	b.schedule(waiting)
	o.PolicyLoaded(b.policies.policy)

	if len(got) != 1 || got["shop/waiting"] != waiting {
		t.Errorf("%v are tried again", got)
	}

	o.PolicyRefused(errors.New(strings.Repeat("x", 5000)))
	if n := len(b.events.notes); n != 3 || len(b.events.notes[2]) > 1100 || !strings.HasPrefix(b.events.notes[2], ReasonPolicyRefused) {
		t.Errorf("%d events, the last %.60q", n, b.events.notes[n-1])
	}
}

// TestStaleMetricWakes checks that a waiting pod is retried once when the metric that closed a node becomes stale.
func TestStaleMetricWakes(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("hot", loadAnnotations(0.9, 0.2, start())), newNode("hotter", loadAnnotations(0.95, 0.2, start())))
	var woken []string

	b.activate = func(pods map[string]*corev1.Pod) { woken = append(woken, sortedNames(pods)...) }
	pod := newPod("web", "100m", "1Gi")
	if _, reasons, _ := b.schedule(pod); len(reasons) != 2 {
		t.Fatal(reasons)
	}

	b.clock.Step(7 * time.Minute)
	b.wake()

	if woken != nil {
		t.Errorf("%v are tried while the metric counts", woken)
	}

	// The average is stale after eight minutes, the maximum of an hour after twenty.
	b.clock.Step(2 * time.Minute)

	// That the end of another pod refreshes the node first makes no difference.
	b.pods.added(newRunningPod(newPod("other", "100m", "1Gi"), "hot", b.clock.Now()))
	b.pods.deleted(newRunningPod(newPod("other", "100m", "1Gi"), "hot", b.clock.Now()))
	b.wake()
	b.wake()

	if want := []string{"shop/web"}; !slices.Equal(woken, want) {
		t.Errorf("%v are tried, want %v", woken, want)
	}
	if _, reasons, _ := b.schedule(pod); reasons["hot"] != ErrReasonTooLoaded+"cpu_usage_max_avg_1h" {
		t.Errorf("closed %v", reasons)
	}

	b.clock.Step(12 * time.Minute)
	b.wake()

	if _, reasons, _ := b.schedule(pod); len(woken) != 2 || len(reasons) != 0 {
		t.Errorf("%v are tried; closed still %v", woken, reasons)
	}

	b.placePod(pod)
	b.clock.Step(24 * time.Hour)
	b.wake()

	if len(woken) != 2 {
		t.Error("nobody waits, and somebody is tried")
	}
}
