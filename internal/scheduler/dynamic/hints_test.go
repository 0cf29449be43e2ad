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
		t.Fatalf("closed %v, want one node", reasons)
	}

	relabeled := newNode("cool", loadAnnotations(0.1, 0.2, start()))
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
		{"one that was open all the time", pod, cool, relabeled, fwk.QueueSkip},
		{"a new node", pod, nil, newNode("new", nil), fwk.Queue},
		{"a new hot node", pod, nil, newNode("new", loadAnnotations(0.9, 0.2, start())), fwk.QueueSkip},
		{"a pod of which nothing is known", stranger, cool, relabeled, fwk.Queue},
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
		t.Errorf("nodeHint for a node that was open in the last attempt = %v, want QueueSkip", got)
	}
}

func TestPodHint(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.4, 0.2, start())), newNode("b", loadAnnotations(0.9, 0.2, start())))
	coming := newPod("coming", "2", "1Gi")
	waiting := newPod("waiting", "1", "1Gi")

	if got := b.placePod(coming); got != "a" {
		t.Fatalf("coming is placed on %q, want a", got)
	}

	if got := b.placePod(waiting); got != "" {
		t.Fatalf("waiting is placed on %q, want no node", got)
	}

	skip := func(name string, deleted *corev1.Pod) {
		t.Helper()
		if got, _ := b.podHint(klog.Background(), waiting, deleted, nil); got != fwk.QueueSkip {
			t.Errorf("%s: podHint = %v, want QueueSkip", name, got)
		}
	}

	skip("a pod that was nowhere", newPod("x", "1", "1Gi"))
	skip("a pod of a node that stays hot", bindTo(newPod("x", "1", "1Gi"), "b"))
	skip("a pod of an unknown node", bindTo(newPod("x", "1", "1Gi"), "c"))

	if got, _ := b.podHint(klog.Background(), waiting, bindTo(coming, "a"), nil); got != fwk.Queue {
		t.Errorf("podHint for an arriving pod that was deleted = %v, want Queue", got)
	}
	if got, _ := b.podHint(klog.Background(), waiting, waiting, waiting); got != fwk.Queue {
		t.Errorf("podHint for the pod itself with lower requests = %v, want Queue", got)
	}
	if got, _ := b.podHint(klog.Background(), waiting, coming, coming); got != fwk.QueueSkip {
		t.Errorf("podHint for another pod with lower requests = %v, want QueueSkip", got)
	}

	if got := b.placePod(waiting); got != "a" || b.pods.rejected.Len() != 0 {
		t.Errorf("waiting is placed on %q with %d rejected pods, want a and 0", got, b.pods.rejected.Len())
	}
}

func TestEventsToRegister(t *testing.T) {
	events, err := (&Plugin{}).EventsToRegister(t.Context())
	if err != nil || len(events) == 0 {
		t.Fatalf("EventsToRegister = %v, %v, want events", events, err)
	}

	var taint bool
	for _, e := range events {
		if e.QueueingHintFn == nil {
			t.Errorf("EventsToRegister lists %v without a hint, want one for each event", e.Event)
		}
		taint = taint || e.Event.Resource == fwk.Node && e.Event.ActionType&fwk.UpdateNodeTaint != 0
	}

	if !taint {
		t.Error("EventsToRegister lacks taint updates, want them with a hint: kube-scheduler would add them without one")
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
		t.Fatalf("%d events after a burst, want %d", len(b.events.notes), eventBurst)
	}

	if want := ReasonLoadAvoided + ": 1 of 2 nodes had too much load for this pod, which is expected to use 1m CPU and 0 MiB; placed on cool"; b.events.notes[0] != want {
		t.Errorf("the first event is %q, want %q", b.events.notes[0], want)
	}

	b.clock.Step(time.Second)
	b.placePod(newPod("late", "1m", "1Mi"))
	b.placePod(newPod("later", "1m", "1Mi"))

	if len(b.events.notes) != eventBurst+1 {
		t.Errorf("%d events after another second, want %d", len(b.events.notes), eventBurst+1)
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
		t.Errorf("activated %v while no pod waits, want none", got)
	}

	b.schedule(waiting)
	o.PolicyLoaded(b.policies.policy)

	if len(got) != 1 || got["shop/waiting"] != waiting {
		t.Errorf("activated %v after a new policy, want shop/waiting", got)
	}

	o.PolicyRefused(errors.New(strings.Repeat("x", 5000)))
	if n := len(b.events.notes); n != 3 || len(b.events.notes[2]) > 1100 || !strings.HasPrefix(b.events.notes[2], ReasonPolicyRefused) {
		t.Errorf("%d events, the last %.60q, want 3 with a truncated %s last", n, b.events.notes[n-1], ReasonPolicyRefused)
	}
}

// TestStaleMetricWakes checks that a waiting pod is retried once when the metric that closed a node becomes stale.
func TestStaleMetricWakes(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("hot", loadAnnotations(0.9, 0.2, start())), newNode("hotter", loadAnnotations(0.95, 0.2, start())))
	var woken []string

	b.activate = func(pods map[string]*corev1.Pod) { woken = append(woken, sortedNames(pods)...) }
	pod := newPod("web", "100m", "1Gi")
	if _, reasons, _ := b.schedule(pod); len(reasons) != 2 {
		t.Fatalf("closed %v, want both nodes", reasons)
	}

	b.clock.Step(7 * time.Minute)
	b.wake()

	if woken != nil {
		t.Errorf("activated %v while the metric is fresh, want none", woken)
	}

	// The average is stale after eight minutes, the maximum of an hour after twenty.
	b.clock.Step(2 * time.Minute)

	// That the end of another pod refreshes the node first makes no difference.
	b.pods.added(newRunningPod(newPod("other", "100m", "1Gi"), "hot", b.clock.Now()))
	b.pods.deleted(newRunningPod(newPod("other", "100m", "1Gi"), "hot", b.clock.Now()))
	b.wake()
	b.wake()

	if want := []string{"shop/web"}; !slices.Equal(woken, want) {
		t.Errorf("activated %v after the average became stale, want %v", woken, want)
	}
	if _, reasons, _ := b.schedule(pod); reasons["hot"] != ErrReasonTooLoaded+"cpu_usage_max_avg_1h" {
		t.Errorf("closed %v, want hot by cpu_usage_max_avg_1h", reasons)
	}

	b.clock.Step(12 * time.Minute)
	b.wake()

	if _, reasons, _ := b.schedule(pod); len(woken) != 2 || len(reasons) != 0 {
		t.Errorf("activated %v, closed %v, want two activations and no closed node", woken, reasons)
	}

	b.placePod(pod)
	b.clock.Step(24 * time.Hour)
	b.wake()

	if len(woken) != 2 {
		t.Errorf("activated %v after the pod was placed, want no further activation", woken)
	}
}
