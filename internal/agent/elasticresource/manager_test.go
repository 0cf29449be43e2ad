// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/pkg/units"
)

// fixture is an API server with one node and its host.
type fixture struct {
	t          *testing.T
	mu         sync.Mutex // guards node
	clock      *clocktesting.FakeClock
	node       *corev1.Node
	pods       []*corev1.Pod
	podsKnown  bool
	cpu        int // used millicores
	patches    []map[string]any
	patchError error
	events     []string
	manager    *Manager
}

func (w *fixture) State() *cluster.State {
	return &cluster.State{Node: w.Node(), Pods: w.pods, KnowsPods: w.podsKnown}
}

func (w *fixture) Node() *corev1.Node {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.node
}
func (w *fixture) Pods() []*corev1.Pod { return w.pods }
func (w *fixture) Rules() ruleset.Set  { return ruleset.Set{} }

func newFixture(t *testing.T) *fixture {
	t.Helper()

	w := &fixture{t: t, clock: clocktesting.NewFakeClock(start), node: newNode(), podsKnown: true, cpu: 3000}
	w.node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi")}
	w.node.Status.Capacity = maps.Clone(w.node.Status.Allocatable)
	w.manager = w.newManager(true)

	return w
}

// newManager starts a new agent on the node.
func (w *fixture) newManager(enforce bool) *Manager {
	client := fake.NewClientset()
	client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := a.(clienttesting.PatchAction)
		if !ok || a.GetSubresource() != "status" {
			w.t.Errorf("the manager sent %v, want only patches of the status", a)
		}

		if w.patchError != nil {
			return true, nil, w.patchError
		}

		return true, w.applyPatch(patch.GetPatch()), nil
	})

	return New(Config{
		View: w, Latest: &observe.Latest{}, Client: client, Objects: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), Namespace: "crane-system",
		Enforce: enforce, Clock: w.clock, Log: logr.Discard(), Beat: func(string) {}, Report: func(a report.Action) { w.events = append(w.events, a.EventReason+": "+a.Reason) },
	})
}

// applyPatch applies a strategic merge patch as an API server does.
func (w *fixture) applyPatch(patch []byte) *corev1.Node {
	w.mu.Lock()
	defer w.mu.Unlock()

	var content map[string]any
	if err := json.Unmarshal(patch, &content); err != nil {
		w.t.Fatal(err)
	}

	w.patches = append(w.patches, content)
	original, err := json.Marshal(w.node)
	if err != nil {
		w.t.Fatal(err)
	}

	merged, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Node{})
	if err != nil {
		w.t.Fatal(err)
	}

	w.node = &corev1.Node{}
	if err := json.Unmarshal(merged, w.node); err != nil {
		w.t.Fatal(err)
	}

	return w.node
}

// advance moves the clock, with a decision every ten seconds.
func (w *fixture) advance(d time.Duration) {
	for range int(d / decideInterval) {
		w.clock.Step(decideInterval)
		w.publishSnapshot()
		w.manager.reconcile(w.t.Context(), w.clock.Now())
	}
}

func (w *fixture) publishSnapshot() {
	w.manager.Latest.Publish(snapshot(w.clock.Now(), 700+units.MilliCPU(w.cpu), 10*gi))
}

func (w *fixture) advertised(name corev1.ResourceName) string {
	capacity, ok := w.node.Status.Capacity[name]
	if !ok {
		return "none"
	}

	if allocatable := w.node.Status.Allocatable[name]; allocatable.Cmp(capacity) != 0 {
		w.t.Errorf("capacity of %s is %s and allocatable %s, want the same", name, &capacity, &allocatable)
	}

	return capacity.String()
}

func (w *fixture) annotation() nodeAnnotation {
	w.t.Helper()

	a := parseAnnotation(w.node.Annotations[annotationName])
	if a == nil {
		w.t.Fatalf("the annotation is %q, want a valid one", w.node.Annotations[annotationName])
	}

	return *a
}

// elasticPod returns a pod that holds cores; its container is "e" of the snapshots.
func elasticPod(name string, cores int64) *corev1.Pod {
	list := corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: *resource.NewQuantity(cores, resource.DecimalSI)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://e"}}},
	}
}

// TestOffers checks what the node advertises, the annotation, and that nothing else is written.
func TestOffers(t *testing.T) {
	w := newFixture(t)
	w.advance(time.Minute)

	if w.advertised(ensurancev1alpha1.ResourceReclaimedCPU) != "none" || w.annotation().CPU.Phase != "waiting" {
		t.Errorf("after a minute the node has %+v, want no offer yet", w.annotation().CPU)
	}

	w.pods = []*corev1.Pod{elasticPod("a", 2)}
	w.advance(15 * time.Minute)

	// 16 - (3.7 - 0.5 of the elastic pod), less a margin of a tenth.
	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != "12" {
		t.Errorf("the node advertises %s cores, want 12", got)
	}
	if a := w.annotation().CPU; a.Advertised != "12" || a.Offer != "12" || a.Use != "3200m" || a.Margin != "320m" || a.Allocatable != "16" || a.Allocated != "2" ||
		a.From != "use" || a.Forecast != "" || a.Problem != "" || a.Deficit != "" {
		t.Errorf("the annotation is %+v, want every term of the offer of 12 cores", a)
	}

	// 64 GiB - 10 GiB, less a margin of a tenth; differences below a fiftieth of the node are not written.
	q, err := resource.ParseQuantity(w.advertised(ensurancev1alpha1.ResourceReclaimedMemory))
	if err != nil || q.Value() > 53*gi || q.Value() < 51*gi {
		t.Errorf("the node advertises %s of memory, want 51 to 53 GiB", w.advertised(ensurancev1alpha1.ResourceReclaimedMemory))
	}

	for _, p := range w.patches {
		if keys := slices.Sorted(maps.Keys(p)); !slices.Equal(keys, []string{"metadata", "status"}) && !slices.Equal(keys, []string{"metadata"}) {
			t.Errorf("a patch has %v, want metadata and at most the status", keys)
		}

		status, _ := p["status"].(map[string]any)
		for part, list := range status {
			for name := range list.(map[string]any) {
				if part != "capacity" && part != "allocatable" || !strings.HasPrefix(name, "gocrane.io/") {
					t.Errorf("a patch has status.%s.%s, want only elastic resources", part, name)
				}
			}
		}
	}

	if len(w.events) == 0 || !slices.Contains(w.events, "UpdateNode: Updating elastic resource local-cpu with 12.") {
		t.Errorf("events are %q, want UpdateNode with gocrane's text", w.events)
	}

	// In a steady state only the annotation is written, every ten minutes.
	before := len(w.patches)
	w.advance(time.Hour)

	if wrote := len(w.patches) - before; wrote < 5 || wrote > 7 {
		t.Errorf("%d writes in a steady hour, want 5 to 7", wrote)
	}
	if capacity := w.manager.ReclaimableCapacity(); capacity.CPU == nil || *capacity.CPU != 12000 || capacity.Memory == nil || *capacity.Memory != w.manager.lastDecision().memory.Offer {
		t.Errorf("ReclaimableCapacity() = %+v, want the offer of 12 cores and its memory", capacity)
	}
}

// TestDeficit checks pods that hold more than the offer: the node keeps advertising what they hold, and the share that rules use is above
// 1.
func TestDeficit(t *testing.T) {
	w := newFixture(t)
	w.advance(15 * time.Minute)
	w.pods = []*corev1.Pod{elasticPod("a", 6)}
	w.cpu = 12300
	w.advance(decideInterval)

	a := w.annotation().CPU
	// 16 - 12.5, less a margin of a tenth, is 2 whole cores.
	if w.advertised(ensurancev1alpha1.ResourceReclaimedCPU) != "6" || a.Phase != "deficit" || a.Deficit != "4" || a.Offer != "2" {
		t.Errorf("the annotation is %+v, want 6 cores advertised, an offer of 2 and a deficit of 4", a)
	}

	if capacity := w.manager.ReclaimableCapacity(); capacity.CPU == nil || *capacity.CPU != 2000 {
		t.Errorf("ReclaimableCapacity() = %+v, want the offer of 2 cores", capacity)
	}
	if got := w.manager.lastDecision().cpu.AllocatedShare; got != 3 {
		t.Errorf("the allocated share is %v, want 3", got)
	}

	// The use becomes unknown, which must not evict pods.
	w.clock.Step(2 * time.Minute)
	w.manager.reconcile(t.Context(), w.clock.Now())

	if capacity := w.manager.ReclaimableCapacity(); capacity.CPU != nil || capacity.Memory != nil || w.advertised(ensurancev1alpha1.ResourceReclaimedCPU) != "6" {
		t.Errorf("ReclaimableCapacity() with unknown use = %+v, want unknown", capacity)
	}

	// Decisions stop.
	w.advance(decideInterval)

	if capacity := w.manager.ReclaimableCapacity(); capacity.CPU == nil || capacity.Memory == nil {
		t.Errorf("ReclaimableCapacity() = %+v, want both resources known again", capacity)
	}

	w.clock.Step(2 * time.Minute)
	if capacity := w.manager.ReclaimableCapacity(); capacity.CPU != nil || capacity.Memory != nil {
		t.Errorf("ReclaimableCapacity() two minutes after a decision = %+v, want unknown", capacity)
	}
}

// TestForecastCounts checks the units and that a requested but missing forecast advertises nothing.
func TestForecastCounts(t *testing.T) {
	w := newFixture(t)
	w.manager.predictions.state = forecastState{requested: true, reason: "not yet"}
	w.advance(10 * time.Minute)

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != "none" || !strings.Contains(w.annotation().CPU.Problem, "not yet") {
		t.Errorf("without its forecast the node advertises %s: %+v; want none and the problem", got, w.annotation().CPU)
	}

	values := make([]string, 120)
	for i := range values {
		values[i] = "12.50000"
	}

	w.manager.predictions.state = forecastState{tsp: newForecast(values...), requested: true}
	w.manager.predictions.state.tsp.Spec.PredictionMetrics = w.manager.predictions.state.tsp.Spec.PredictionMetrics[:1]
	w.advance(15 * time.Minute)

	if a := w.annotation().CPU; w.advertised(ensurancev1alpha1.ResourceReclaimedCPU) != "2" || a.From != "forecast" || a.Forecast != "12500m" || a.Need != "12500m" || a.Use != "3700m" {
		t.Errorf("the node advertises %s: %+v; want 2 cores by the forecast of 12.5", w.advertised(ensurancev1alpha1.ResourceReclaimedCPU), a)
	}
	if !slices.Contains(w.events, "UpdateNode: Updating elastic resource tsp-cpu with 2.") {
		t.Errorf("events are %q, want one with source tsp", w.events)
	}
}

// TestReserve checks that the Node's annotation overrides the flag, and that an invalid one advertises nothing.
func TestReserve(t *testing.T) {
	w := newFixture(t)
	w.manager.Reserves.CPU = 0.25
	w.advance(15 * time.Minute)

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != "7" {
		t.Errorf("the node advertises %s cores with a quarter in reserve, want 7", got)
	}

	w.node.Annotations[reserveCPU] = "50%"
	w.advance(time.Minute)

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != "3" {
		t.Errorf("the node advertises %s cores with half in reserve, want 3", got)
	}

	w.node.Annotations[reserveCPU] = "none"
	w.advance(time.Hour)

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != "0" || !strings.Contains(w.annotation().CPU.Problem, "none") {
		t.Errorf("the node advertises %s with an invalid reserve: %+v; want 0 and the problem", got, w.annotation().CPU)
	}
	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedMemory); got == "0" {
		t.Error("memory is 0 with an invalid reserve of CPU, want it unchanged")
	}
}

// TestKubelet checks that resources reset by a kubelet are restored before the next regular decision.
func TestKubelet(t *testing.T) {
	w := newFixture(t)
	w.advance(15 * time.Minute)
	w.advance(time.Minute)
	before := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU)

	if w.manager.isOverwritten(w.clock.Now().Add(time.Minute)) {
		t.Error("isOverwritten = true without an overwrite, want false")
	}

	zero := w.resetAdvertised
	zero()
	w.clock.Step(4 * time.Second)
	w.publishSnapshot()

	if !w.manager.isOverwritten(w.clock.Now()) {
		t.Fatal("isOverwritten = false after an overwrite, want true")
	}

	w.manager.reconcile(t.Context(), w.clock.Now())
	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != before {
		t.Errorf("the node advertises %s, want %s as before", got, before)
	}

	// Repeated overwrites are answered at decisions only.
	zero()
	w.clock.Step(4 * time.Second)

	if w.manager.isOverwritten(w.clock.Now()) {
		t.Error("isOverwritten = true after another overwrite, want false until the next decision")
	}

	w.advance(decideInterval)
	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != before {
		t.Errorf("the node advertises %s, want %s as before", got, before)
	}
}

// TestOverwriteAfterWrite checks that overwrites right after a write are detected by resource version, else after the watch delay.
func TestOverwriteAfterWrite(t *testing.T) {
	for _, c := range []struct {
		version, seen string
		after         time.Duration
		want          bool
	}{
		{"7", "8", 0, true},
		{"7", "7", 0, true},
		{"10", "9", 0, false},
		{"7", "x", 0, false},
		{"", "8", 0, false},
		{"10", "9", watchDelay, true},
		{"", "", watchDelay, true},
	} {
		w := newFixture(t)
		w.advance(15 * time.Minute)
		w.resetAdvertised()
		w.node.ResourceVersion = c.seen

		w.manager.written.tried = w.clock.Now()
		w.manager.written.version = c.version
		if got := w.manager.isOverwritten(w.clock.Now().Add(c.after)); got != c.want {
			t.Errorf("%+v: isOverwritten = %t, want %t", c, got, c.want)
		}
	}
}

// resetAdvertised sets extended resources to 0, as a kubelet does when it registers its node again.
func (w *fixture) resetAdvertised() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.node = w.node.DeepCopy()
	for _, list := range []corev1.ResourceList{w.node.Status.Capacity, w.node.Status.Allocatable} {
		list[ensurancev1alpha1.ResourceReclaimedCPU] = resource.Quantity{}
		list[ensurancev1alpha1.ResourceReclaimedMemory] = resource.Quantity{}
	}
}

// TestOverwriteIsRestoredAtOnce checks that a change of the Node triggers the restoration: a kubelet checks within a second which pods
// may stay.
func TestOverwriteIsRestoredAtOnce(t *testing.T) {
	w := newFixture(t)
	w.advance(15 * time.Minute)
	w.clock.Step(watchDelay)
	was := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU)
	changed := make(chan struct{})
	beats := make(chan string)
	w.manager.NodeChanged = changed

	ctx, cancel := context.WithCancel(t.Context())
	w.manager.Beat = func(step string) {
		select {
		case beats <- step:
		case <-ctx.Done():
		}
	}

	done := make(chan error)
	go func() { done <- w.manager.Run(ctx) }()
	<-beats
	w.resetAdvertised()

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != "0" {
		t.Fatalf("the node advertises %s, want 0 after the overwrite", got)
	}

	changed <- struct{}{} // without moving the clock
	<-beats

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != was {
		t.Errorf("the node advertises %s, want %s as before", got, was)
	}

	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestAnotherNode checks that a recreated Node, with another UID, starts without state.
func TestAnotherNode(t *testing.T) {
	w := newFixture(t)
	w.advance(15 * time.Minute)
	w.node = w.node.DeepCopy()
	w.node.UID = "u2"
	w.node.Annotations = nil
	delete(w.node.Status.Capacity, ensurancev1alpha1.ResourceReclaimedCPU)
	delete(w.node.Status.Allocatable, ensurancev1alpha1.ResourceReclaimedCPU)
	w.advance(time.Minute)

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != "none" {
		t.Errorf("the node advertises %s, want none until the offer is stable", got)
	}

	w.node = nil
	w.advance(time.Minute)
}

// TestDryRun checks that a dry run makes the same decisions without writes.
func TestDryRun(t *testing.T) {
	w := newFixture(t)
	w.manager = w.newManager(false)
	w.advance(15 * time.Minute)

	if len(w.patches) > 0 || len(w.events) == 0 || !strings.HasPrefix(w.events[0], ": Updating") || w.advertised(ensurancev1alpha1.ResourceReclaimedCPU) != "none" {
		t.Errorf("a dry run wrote %v with events %q, want no write and the change as event", w.patches, w.events)
	}
	if latest := w.manager.lastDecision(); latest.cpu.Advertise != 11000 || w.manager.cpu.dryRun != 11000 {
		t.Errorf("a dry run would advertise %s, want 11 cores", latest)
	}
	if err := w.manager.withdraw(t.Context()); err != nil || len(w.patches) > 0 {
		t.Errorf("%v", err)
	}
}

// TestWithdraw checks that an agent that stops in order leaves what pods hold, and that its successor resumes, unless it starts much
// later.
func TestWithdraw(t *testing.T) {
	for _, c := range []struct {
		away time.Duration
		held []*corev1.Pod
		left string
		next string
	}{
		{time.Minute, []*corev1.Pod{elasticPod("a", 2)}, "2", "12"},
		{time.Hour, []*corev1.Pod{elasticPod("a", 2)}, "2", "2"},
		{time.Minute, nil, "none", "11"},
	} {
		w := newFixture(t)
		w.pods = c.held
		w.advance(15 * time.Minute)

		if err := w.manager.withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}

		if a := w.annotation(); w.advertised(ensurancev1alpha1.ResourceReclaimedCPU) != c.left || !a.Ended || a.CPU.Phase != "withdrawn" {
			t.Errorf("withdraw leaves %s: %+v; want %s and an ended annotation", w.advertised(ensurancev1alpha1.ResourceReclaimedCPU), a, c.left)
		}

		w.clock.Step(c.away)
		w.manager = w.newManager(true)
		w.advance(decideInterval)

		if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got != c.next || w.annotation().Ended {
			t.Errorf("after %s: shows %s, want %s", c.away, got, c.next)
		}
	}

	// Nothing is withdrawn while the pods are unknown.
	w := newFixture(t)
	w.advance(15 * time.Minute)

	w.podsKnown = false
	before := len(w.patches)
	if err := w.manager.withdraw(t.Context()); err != nil || len(w.patches) != before {
		t.Errorf("withdraw with unknown pods = %v with %d writes, want nil and none", err, len(w.patches)-before)
	}
}

// TestWithdrawTriedAgain checks that the withdrawal is retried.
func TestWithdrawTriedAgain(t *testing.T) {
	w := newFixture(t)
	w.advance(15 * time.Minute)
	failed := w.manager.failed
	w.patchError = apierrors.NewServiceUnavailable("gone")
	done := make(chan error, 1)
	go func() { done <- w.manager.withdraw(t.Context()) }()

	paused := func(context.Context) (bool, error) { return w.clock.HasWaiters(), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, paused); err != nil {
		t.Fatal("withdraw does not pause after the first try, want a retry")
	}

	w.patchError = nil
	w.clock.Step(time.Minute)

	if err := <-done; err != nil || !w.annotation().Ended || w.manager.failed != failed+1 {
		t.Errorf("withdraw = %v with annotation %+v, want nil and an ended one after one failure", err, w.annotation())
	}
}

// TestRefused checks that refused writes are retried and counted.
func TestRefused(t *testing.T) {
	w := newFixture(t)
	w.patchError = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no"))
	w.advance(10 * time.Minute)

	if w.manager.failed == 0 || w.manager.wrote != 0 || !strings.Contains(w.manager.written.failure, "no") {
		t.Errorf("%v failed and %v written with failure %q, want only failures", w.manager.failed, w.manager.wrote, w.manager.written.failure)
	}
	if err := w.manager.withdraw(t.Context()); err == nil {
		t.Error("withdraw = nil while writes are forbidden, want an error")
	}

	w.patchError = nil
	w.advance(decideInterval)

	if got := w.advertised(ensurancev1alpha1.ResourceReclaimedCPU); got == "none" {
		t.Error("the node advertises nothing, want a retry at the next decision")
	}
}

func TestMetrics(t *testing.T) {
	w := newFixture(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.manager)

	if _, err := registry.Gather(); err != nil {
		t.Fatal(err)
	}

	w.advance(15 * time.Minute)
	const want = `# HELP crane_craneAgent_node_resource_recommended_from Source of the need: 1 for the forecast, 0 for the measured use.
# TYPE crane_craneAgent_node_resource_recommended_from gauge
crane_craneAgent_node_resource_recommended_from{resourceName="cpu",step="",subcomponent=""} 0
crane_craneAgent_node_resource_recommended_from{resourceName="memory",step="",subcomponent=""} 0
# HELP crane_agent_elastic_cpu_cores Terms of the offer of gocrane.io/cpu, in cores.
# TYPE crane_agent_elastic_cpu_cores gauge
crane_agent_elastic_cpu_cores{term="advertised"} 11
crane_agent_elastic_cpu_cores{term="allocatable"} 16
crane_agent_elastic_cpu_cores{term="allocated"} 0
crane_agent_elastic_cpu_cores{term="deficit"} 0
crane_agent_elastic_cpu_cores{term="margin"} 0.37
crane_agent_elastic_cpu_cores{term="need"} 3.7
crane_agent_elastic_cpu_cores{term="offer"} 11
crane_agent_elastic_cpu_cores{term="reserve"} 0
crane_agent_elastic_cpu_cores{term="stable"} 11
crane_agent_elastic_cpu_cores{term="use"} 3.7
`

	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "crane_craneAgent_node_resource_recommended_from", "crane_agent_elastic_cpu_cores"); err != nil {
		t.Error(err)
	}
}

// TestRun checks that Run decides by the clock and withdraws at its end.
func TestRun(t *testing.T) {
	w := newFixture(t)
	w.publishSnapshot()
	ctx, cancel := context.WithCancel(t.Context())
	beats := make(chan string, 1)
	w.manager.Beat = func(step string) {
		select {
		case beats <- step:
		default:
		}
	}

	done := make(chan error)
	go func() { done <- w.manager.Run(ctx) }()
	<-beats
	cancel()

	if err := <-done; err != nil {
		t.Fatal(err)
	}

	if a := w.annotation(); !a.Ended {
		t.Errorf("the annotation at the end is %+v, want an ended one", a)
	}
}
