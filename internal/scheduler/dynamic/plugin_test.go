// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/nodeload"
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestHotNodeIsClosedAndCoolOneBest(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("cool", loadAnnotations(0.2, 0.2, start())), newNode("hot", loadAnnotations(0.7, 0.2, start())),
		newNode("warm", loadAnnotations(0.5, 0.2, start())), newNode("full", loadAnnotations(0.2, 0.66, start())))

	_, reasons, scores := b.schedule(newPod("web", "1", "1Gi"))
	if want := map[string]string{
		"hot": ErrReasonTooLoaded + "cpu_usage_avg_5m", "full": ErrReasonTooLoaded + "mem_usage_avg_5m",
	}; !maps.Equal(reasons, want) {
		t.Errorf("closed %v, want %v", reasons, want)
	}
	if scores["cool"] != 100 || scores["warm"] != 0 {
		t.Errorf("scores %v, want 100 for cool and 0 for warm", scores)
	}
}

// TestGarbageIsUnknown checks that a node with invalid annotations is neither closed nor preferred nor avoided.
func TestGarbageIsUnknown(t *testing.T) {
	for _, garbage := range []string{
		"", "garbage", "-0.5,2026-03-01T12:00:00Z", "1e308,2026-03-01T12:00:00Z", "NaN,2026-03-01T12:00:00Z", "0.1,2026-03-01T12:00:00Z,",
		"0.1,2099-01-01T00:00:00Z", "0.1,2026-03-01T04:00:00Z", "0.1,yesterday", strings.Repeat("9", 100000),
	} {
		annotations := loadAnnotations(0.3, 0.3, start())
		for name := range annotations {
			annotations[name] = garbage
		}

		b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.29, 0.3, start())), newNode("b", loadAnnotations(0.31, 0.3, start())), newNode("c", annotations))
		_, reasons, scores := b.schedule(newPod("web", "100m", "1Gi"))
		if len(reasons) != 0 || scores["a"] != 100 || scores["c"] == 100 || scores["c"] < scores["b"] {
			t.Errorf("%.30q: closed %v, scores %v, want none closed and c scored from b's score to below 100", garbage, reasons, scores)
		}
	}
}

func TestWhoIsExempt(t *testing.T) {
	critical := int32(systemCritical)
	daemon := owned(newPod("log", "100m", "1Gi"), "DaemonSet", "log")
	dns := newPod("dns", "100m", "1Gi")
	dns.Spec.Priority = &critical

	b := newFixture(t, nodeload.Strategy{}, newNode("hot", loadAnnotations(0.9, 0.2, start())), newNode("hotter", loadAnnotations(0.95, 0.2, start())))
	if _, reasons, scores := b.schedule(daemon); len(reasons) != 0 || scores != nil {
		t.Errorf("a DaemonSet's pod: closed %v, scores %v, want neither", reasons, scores)
	}
	if _, reasons, scores := b.schedule(dns); len(reasons) != 0 || scores["hot"] != 100 {
		t.Errorf("a critical pod: closed %v, scores %v, want none closed and hot scored 100", reasons, scores)
	}
	if _, reasons, _ := b.schedule(newPod("web", "100m", "1Gi")); len(reasons) != 2 {
		t.Errorf("any other pod: closed %v, want both nodes", reasons)
	}
}

// TestAbstains checks that nothing is filtered or scored with fewer than half of the nodes fresh, and that this ends
// within a second after they are fresh again.
func TestAbstains(t *testing.T) {
	nodes := []*corev1.Node{newNode("a", loadAnnotations(0.9, 0.2, start())), newNode("b", nil), newNode("c", nil)}
	b := newFixture(t, nodeload.Strategy{}, nodes...)
	if _, reasons, scores := b.schedule(newPod("web", "100m", "1Gi")); len(reasons) != 0 || scores != nil {
		t.Errorf("one of three is fresh: closed %v, scores %v, want neither", reasons, scores)
	}

	b.replace(newNode("b", loadAnnotations(0.3, 0.2, start())))
	b.clock.Step(time.Second)

	if _, reasons, scores := b.schedule(newPod("web", "100m", "1Gi")); len(reasons) != 1 || len(scores) != 2 {
		t.Errorf("two of three are fresh: closed %v, scores %v, want one closed and two scored", reasons, scores)
	}

	// An hour without Prometheus: everything is stale.
	b.clock.Step(time.Hour)

	if _, reasons, _ := b.schedule(newPod("web", "100m", "1Gi")); len(reasons) != 0 {
		t.Errorf("metrics of an hour ago close %v, want no node", reasons)
	}
}

// TestFilterWithoutPreFilter uses a profile as in gocrane's documentation, with filter and score only.
func TestFilterWithoutPreFilter(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("cool", loadAnnotations(0.2, 0.2, start())), newNode("hot", loadAnnotations(0.7, 0.2, start())))
	s := &state{}
	pod := newPod("web", "100m", "1Gi")
	if b.Filter(t.Context(), s, pod, b.infos[1]).IsSuccess() || !b.Filter(t.Context(), s, pod, b.infos[0]).IsSuccess() {
		t.Error("want the hot node closed and the cool one open")
	}
	if _, status := b.Score(t.Context(), s, pod, b.infos[0]); !status.IsSuccess() {
		t.Errorf("Score without PreFilter = %v, want success", status)
	}
}

func TestReserveAndUnreserve(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.3, 0.3, start())), newNode("b", loadAnnotations(0.3, 0.3, start())))
	pod := newPod("web", "1", "1Gi")
	s, _, _ := b.schedule(pod)
	onWay := func(node string) float64 { return float64(b.entry(node).view.Load().Loads[0].OnWay) }
	for range 2 {
		b.Reserve(t.Context(), s, pod, "a")
		if got := onWay("a"); got <= 0.01 || got > 0.1 {
			t.Fatalf("after Reserve %v is on its way to a, want above 0.01 and up to 0.1", got)
		}
	}

	if got := b.placePod(newPod("next", "1", "1Gi")); got != "b" {
		t.Errorf("the next pod goes to %q, want b", got)
	}

	for range 2 {
		b.Unreserve(t.Context(), s, pod, "a")
	}

	b.Unreserve(t.Context(), &state{}, newPod("never", "1", "1Gi"), "a")
	if onWay("a") != 0 || b.entry("a").onWay() != 0 {
		t.Errorf("after Unreserve %v is on its way to a by %d pods, want 0", onWay("a"), b.entry("a").onWay())
	}

	// The API server shows the placement; the pod does not count twice.
	b.pods.updated(newPod("next", "1", "1Gi"), bindTo(newPod("next", "1", "1Gi"), "b"))

	if b.entry("b").onWay() != 1 || b.pods.reserved.Len() != 0 {
		t.Errorf("%d pods on their way to b, %d reserved, want 1 and 0", b.entry("b").onWay(), b.pods.reserved.Len())
	}
}

// TestPodsOfOthers follows pods placed by another scheduler, from binding to their end, and checks for leaks.
func TestPodsOfOthers(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.3, 0.3, start())))
	handler := b.pods.handler()
	b.schedule(newPod("any", "1", "1Gi"))

	pending := newPod("web", "1", "1Gi")
	count := func() int { return b.entry("a").onWay() }
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"made", func() { handler.OnAdd(pending, false) }, 0},
		{"bound", func() { handler.OnUpdate(pending, bindTo(pending, "a")) }, 1},
		{"labeled", func() { handler.OnUpdate(bindTo(pending, "a"), bindTo(pending, "a")) }, 1},
		{"running", func() { handler.OnUpdate(bindTo(pending, "a"), newRunningPod(pending, "a", b.clock.Now())) }, 1},
		{"an old one seen at start", func() { handler.OnAdd(newRunningPod(newPod("old", "1", "1Gi"), "a", start().Add(-24*time.Hour)), true) }, 1},
		{"a young one seen at start", func() {
			handler.OnAdd(newRunningPod(newPod("young", "1", "1Gi"), "a", start().Add(-time.Minute)), true)
		}, 2},
		{"deleted", func() { handler.OnDelete(newRunningPod(pending, "a", start())) }, 1},
		{"ended", func() {
			done := newRunningPod(newPod("young", "1", "1Gi"), "a", start())
			done.Status.Phase = corev1.PodSucceeded
			handler.OnUpdate(newRunningPod(newPod("young", "1", "1Gi"), "a", start()), done)
		}, 0},
	} {
		step.do()
		if got := count(); got != step.want {
			t.Fatalf("%s: %d pods on their way, want %d", step.name, got, step.want)
		}
	}

	// Reserved, bound, and deleted between two watches: the last state that was seen has no node.
	pod := newPod("unseen", "1", "1Gi")
	if got := b.placePod(pod); got != "a" || count() != 1 {
		t.Fatalf("placed on %q with %d pods on their way, want a and 1", got, count())
	}

	handler.OnDelete(tombstone(pod))
	if count() != 0 || b.pods.reserved.Len() != 0 || b.pods.rejected.Len() != 0 {
		t.Errorf("%d on their way, %d reserved, %d rejected, want 0 of each", count(), b.pods.reserved.Len(), b.pods.rejected.Len())
	}
}

// TestIdlePodsLeaveNoCredit checks that idle pods with large requests which leave a loaded node do not make it look
// free, whereas a pod of a workload with measured usage does by less than that, and departures make up for the pods
// that replace them.
func TestIdlePodsLeaveNoCredit(t *testing.T) {
	loaded := func() *fixture {
		return newFixture(t, nodeload.Strategy{}, newNode("hot", loadAnnotations(0.8, 0.3, start())), newNode("cool", loadAnnotations(0.2, 0.3, start())))
	}
	b := loaded()
	closed := func() bool {
		_, reasons, _ := b.schedule(newPod("web", "500m", "1Gi"))
		return reasons["hot"] != ""
	}

	onWay := func() float64 { return float64(b.entry("hot").view.Load().Loads[0].OnWay) }
	idle := func(i int) *corev1.Pod {
		return newRunningPod(newPod(fmt.Sprint("idle-", i), "700m", "1Gi"), "hot", start().Add(-24*time.Hour))
	}

	if !closed() {
		t.Fatal("a node of 80 % load is open, want it closed")
	}

	for i := range 10 {
		b.pods.deleted(idle(i))
	}

	if !closed() || onWay() != 0 {
		t.Errorf("ten idle pods have left a loaded node: closed %t, on its way %v, want closed and 0", closed(), onWay())
	}

	// A pod that comes instead counts less than without departures.
	b.pods.added(bindTo(newPod("instead", "700m", "1Gi"), "hot"))
	b.NodeChanged(newNode("hot", loadAnnotations(0.8, 0.3, start())))

	if got := onWay(); got != 0 {
		t.Errorf("a replacement of one of ten departed pods adds %v, want 0", got)
	}

	b = loaded()
	closed()
	b.pods.history.Learn(Workload{Namespace: "shop", Kind: "StatefulSet", Name: "db"}, nodeload.Amount{CPU: 3000, Memory: 1 << 30})
	b.pods.deleted(newRunningPod(owned(newPod("db", "6", "1Gi"), "StatefulSet", "db"), "hot", start().Add(-24*time.Hour)))

	if got := onWay(); got > -0.1 || got < -0.2 {
		t.Errorf("a pod of a workload that uses up to 30 %% of the node was credited with %v, want 0.1 to 0.2", -got)
	}
}

// TestHandOver checks that a pod is pending load until a sample contains it, and only by the part that it does not
// contain.
func TestHandOver(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.3, 0.3, start())), newNode("b", loadAnnotations(0.3, 0.3, start())))
	pod := newPod("web", "1", "1Gi")
	if got := b.placePod(pod); got != "a" {
		t.Fatalf("placed on %q, want a", got)
	}

	whole := float64(b.entry("a").view.Load().Loads[0].OnWay)
	b.pods.updated(bindTo(pod, "a"), newRunningPod(pod, "a", start()))

	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{30 * time.Second, 1}, {3 * time.Minute, 0.5}, {330 * time.Second, 0}} {
		b.clock.SetTime(start().Add(c.after))
		b.replace(newNode("a", loadAnnotations(0.3, 0.3, b.clock.Now())))
		b.replace(newNode("b", loadAnnotations(0.3, 0.3, b.clock.Now())))
		b.schedule(newPod("any", "1", "1Gi"))

		if got := float64(b.entry("a").view.Load().Loads[0].OnWay) / whole; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("after %v %v of the pod is on its way, want %v", c.after, got, c.want)
		}
	}

	if got := b.entry("a").onWay(); got != 0 {
		t.Errorf("%d pods are on their way to a, want 0", got)
	}
}

func TestHistoryCounts(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.3, 0.3, start())))
	pod := owned(newPod("web-5d4f-x", "1", "1Gi"), "ReplicaSet", "web-5d4f")
	pod.Labels = map[string]string{hashLabel: "5d4f"}
	b.pods.history.Learn(Workload{"shop", "Deployment", "web"}, nodeload.Amount{CPU: 2000, Memory: 3 << 30})
	b.placePod(pod)

	if got := b.entry("a").view.Load().Loads[0].OnWay; math.Abs(float64(got)-0.2) > 1e-9 {
		t.Errorf("on its way: %v, want the 2 cores of the history", got)
	}
	if e, _ := b.Explain("shop", "web-5d4f-x"); e.Basis != "history" || e.CPU != 2000 {
		t.Errorf("explained as %d from %q, want 2000 from history", e.CPU, e.Basis)
	}

	b.pods.history.Learn(Workload{"shop", "Deployment", "web"}, nodeload.Amount{})
	if b.pods.history.Len() != 0 {
		t.Errorf("the history has %d workloads, want 0", b.pods.history.Len())
	}
}

// TestNewPolicy checks that a new policy applies to the next pod, and an unusable one does not.
func TestNewPolicy(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.5, 0.3, start())))
	pod := newPod("web", "100m", "1Gi")
	if _, reasons, _ := b.schedule(pod); len(reasons) != 0 {
		t.Fatalf("closed %v, want none", reasons)
	}

	spec := nodeload.GocraneSpec()
	spec.Metrics = spec.Metrics[:1]
	spec.Priorities = spec.Priorities[:1]
	spec.Predicates = []nodeload.NamedLimit{{Name: "cpu_usage_avg_5m", Max: 0.4}}

	b.policies.policy = policyOf(t, spec)
	if _, reasons, _ := b.schedule(pod); len(reasons) != 1 {
		t.Errorf("closed %v by the new policy, want a", reasons)
	}

	b.policies.policy = &nodeload.Policy{Metrics: make([]nodeload.Metric, 100)}
	if _, reasons, _ := b.schedule(pod); len(reasons) != 1 {
		t.Errorf("closed %v after a policy that cannot be used, want a still", reasons)
	}
}

func TestForgetsNodes(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.5, 0.3, start())), newNode("b", loadAnnotations(0.5, 0.3, start())))
	b.schedule(newPod("web", "1", "1Gi"))
	b.pods.added(bindTo(newPod("lost", "1", "1Gi"), "nowhere"))

	b.infos = b.infos[:1]
	for range dropAfter + 2 {
		b.clock.Step(censusPeriod)
		b.schedule(newPod("web", "1", "1Gi"))
	}

	b.entries.Range(func(name, _ any) bool {
		if name != "a" {
			t.Errorf("%v still has an entry, want that of a alone", name)
		}

		return true
	})
}

// TestNodesComeAndGo checks that the state of a node stays with it when other nodes take its place in the list, and
// that attempts keep the names of their time, shared while the nodes are the same.
func TestNodesComeAndGo(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.2, 0.2, start())), newNode("b", loadAnnotations(0.3, 0.2, start())), newNode("c", loadAnnotations(0.9, 0.2, start())))
	first := newPod("first", "1", "1Gi")
	second := newPod("second", "1", "1Gi")
	b.schedule(first)
	before := b.last.Load()
	b.clock.Step(censusPeriod)
	b.schedule(newPod("between", "1", "1Gi"))

	if after := b.last.Load(); after == before || &after.roster[0] != &before.roster[0] {
		t.Error("two snapshots of the same nodes have rosters of their own, want a shared one")
	}

	b.infos = []fwk.NodeInfo{b.infos[2], b.infos[1], &nodeInfo{node: newNode("d", loadAnnotations(0.4, 0.2, start()))}}
	b.clock.Step(censusPeriod)
	b.schedule(second)

	for pod, want := range map[string][]string{"first": {"a", "b", "c"}, "second": {"b", "d", "c"}} {
		e, _ := b.Explain("shop", pod)
		var got []string
		for _, n := range e.Nodes {
			got = append(got, n.Name)
		}

		if !slices.Equal(got, want) || e.Nodes[2].Verdict != nodeload.Closed {
			t.Errorf("%s: %v, want %v with the last closed", pod, got, want)
		}
	}

	// A node deleted while the list is read has no object.
	if snapshot := b.summarize(append(b.infos, &nodeInfo{})); len(snapshot.roster) != 3 || snapshot.Nodes != 3 {
		t.Errorf("summarize with a deleted node = roster %v of %d nodes, want 3", snapshot.roster, snapshot.Nodes)
	}
}

func TestSignPod(t *testing.T) {
	p := &Plugin{}
	sign := func(pod *corev1.Pod) any {
		fragments, status := p.SignPod(t.Context(), pod)
		if !status.IsSuccess() || len(fragments) != 1 {
			t.Fatalf("SignPod of %s = %v, %v, want one fragment", pod.Name, fragments, status)
		}

		return fragments[0].Value
	}

	one := sign(newPod("web-1", "1", "1Gi"))
	if sign(newPod("web-2", "1", "1Gi")) != one {
		t.Error("SignPod differs for equal pods, want equal signatures")
	}

	for _, other := range []*corev1.Pod{
		newPod("web-1", "2", "1Gi"), owned(newPod("web-1", "1", "1Gi"), "StatefulSet", "web"), owned(newPod("web-1", "1", "1Gi"), "DaemonSet", "web"),
	} {
		if sign(other) == one {
			t.Errorf("SignPod of %+v = that of web-1, want another signature", other.ObjectMeta)
		}
	}
}

var _ fwk.StateData = (*cycle)(nil)

// TestFilterIsSkipped checks that Filter is skipped while even the fullest node is open, and that placements and
// reports change that.
func TestFilterIsSkipped(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("a", loadAnnotations(0.3, 0.3, start())), newNode("b", loadAnnotations(0.5, 0.3, start())))
	skips := func(pod *corev1.Pod) bool {
		_, status := b.PreFilter(t.Context(), &state{}, pod, b.infos)
		return status.IsSkip()
	}

	small := newPod("small", "100m", "1Gi")
	large := newPod("large", "4", "1Gi")
	if !skips(small) || skips(large) {
		t.Errorf("15 points below the limit: PreFilter skips a pod of one point %v, of thirty points %v, want true and false", skips(small), skips(large))
	}

	s, _, _ := b.schedule(small)
	b.Reserve(t.Context(), s, small, "b")

	// Pods bound by other schedulers count as well, without a new snapshot.
	b.pods.added(bindTo(newPod("others", "2500m", "1Gi"), "b"))

	if skips(small) {
		t.Error("PreFilter skips Filter with a full node's pending load, want Filter to run")
	}

	b.pods.deleted(bindTo(newPod("others", "2500m", "1Gi"), "b"))
	b.clock.Step(time.Second)

	if !skips(small) {
		t.Error("PreFilter runs Filter after the pod was deleted, want Skip")
	}

	b.NodeChanged(newNode("a", loadAnnotations(0.649, 0.3, start())))
	if skips(small) {
		t.Error("PreFilter skips Filter after a node reported a high load, want Filter to run before the next snapshot")
	}

	b.clock.Step(time.Second)
	if !skips(small) {
		t.Error("PreFilter runs Filter after a snapshot of the scheduler's older view, want Skip")
	}

	b.replace(newNode("a", nil))
	b.clock.Step(time.Second)

	if skips(small) {
		t.Error("PreFilter skips Filter with a node without metrics, want Filter to run")
	}

	// The only node left by other plugins is selected without a score: it is explained, and the others are not.
	b.replace(newNode("a", loadAnnotations(0.3, 0.3, start())))
	b.clock.Step(time.Second)
	alone := &state{}
	b.PreFilter(t.Context(), alone, small, b.infos)
	b.Reserve(t.Context(), alone, small, "a")

	if e, ok := b.Explain("shop", "small"); !ok || len(e.Nodes) != 1 || e.Nodes[0].Name != "a" || e.Nodes[0].Verdict != nodeload.Passed || e.NotAsked != 1 {
		t.Errorf("Explain(shop, small) = %+v, want a passed and one node not asked", e)
	}
}

// onWay returns the number of arriving pods.
func (e *entry) onWay() int {
	e.mu.Lock()
	defer e.mu.Unlock()

	return e.arrivals.Len()
}
