// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// topologies is a client of NodeResourceTopologies.
func topologies(t testing.TB, config *rest.Config) ctrlclient.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := topology.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	c, err := ctrlclient.New(config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// machine makes a node and its NodeResourceTopology, with zones of that many CPUs each under the given names.
func (f *fixture) machine(name string, policy topology.TopologyManagerPolicy, zones []string, cpus int64) *topology.NodeResourceTopology {
	f.Helper()
	f.node(name, 200, nil)
	return f.topology(name, policy, zones, cpus)
}

func (f *fixture) topology(name string, policy topology.TopologyManagerPolicy, zones []string, cpus int64) *topology.NodeResourceTopology {
	f.Helper()

	f.staleCaches = true
	o := &topology.NodeResourceTopology{
		ObjectMeta:         metav1.ObjectMeta{Name: name},
		CraneManagerPolicy: topology.ManagerPolicy{CPUManagerPolicy: topology.CPUManagerPolicyStatic, TopologyManagerPolicy: policy},
	}

	for _, z := range zones {
		o.Zones = append(o.Zones, topology.Zone{Name: z, Type: topology.ZoneTypeNode, Resources: &topology.ResourceInfo{
			Capacity: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)},
		}})
	}

	c := topologies(f, control.Config())
	if err := c.Create(f.Context(), o); err != nil {
		f.Fatal(err)
	}

	f.Cleanup(func() { _ = c.Delete(context.WithoutCancel(f.Context()), o) })
	return o
}

// zones returns the zones in the pod's annotation, such as "node0=3 node1=1".
func zones(t testing.TB, pod *corev1.Pod) string {
	t.Helper()

	s := pod.Annotations[topology.AnnotationPodTopologyResult]
	if s == "" {
		return ""
	}

	var list []topology.Zone
	if err := json.Unmarshal([]byte(s), &list); err != nil {
		t.Fatalf("parsing the annotation %q: %v", s, err)
	}

	var parts []string
	for _, z := range list {
		parts = append(parts, fmt.Sprintf("%s=%s", z.Name, z.Resources.Capacity.Cpu()))
	}

	return strings.Join(parts, " ")
}

const (
	single = topology.TopologyManagerPolicySingleNUMANodePodLevel
	spread = topology.TopologyManagerPolicyNone
)

// TestWholeCPUs checks that pods with whole CPUs get zones that fit and an annotation with them, and that one too many
// waits with the reason and is placed as soon as another has left.
func TestWholeCPUs(t *testing.T) {
	f := newFixture(t, startScheduler(t, setup{profile: topologyProfile("{}")}))
	f.machine("whole-a", single, []string{"node0", "node1"}, 4)
	f.machine("whole-b", single, []string{"node0", "node1"}, 4)

	used := map[string]string{}
	for i := range 4 {
		name := fmt.Sprint("whole-", i)
		f.pod(name, "3")

		pod := f.awaitPlaced(name)
		zone, ok := strings.CutSuffix(zones(t, pod), "=3")
		if !ok {
			t.Fatalf("pod %s has the zones %q, want one with 3 CPUs", name, zones(t, pod))
		}

		if other, taken := used[pod.Spec.NodeName+zone]; taken {
			t.Errorf("%s and %s are both in %s of %s, want one: it has 4 CPUs", name, other, zone, pod.Spec.NodeName)
		}
		used[pod.Spec.NodeName+zone] = name
	}

	f.pod("whole-late", "3")
	f.awaitPending("whole-late", "2 node(s) had insufficient resource of NUMA node (no zone has cpu=3 free)")

	// Shared CPUs are not the zones' business, nor are parts of one.
	f.pod("shared", "3", func(p *corev1.Pod) { p.Annotations = map[string]string{topology.AnnotationPodCPUPolicy: "none"} })
	f.pod("part", "1500m")

	for _, name := range []string{"shared", "part"} {
		if pod := f.awaitPlaced(name); zones(t, pod) != "" {
			t.Errorf("pod %s got the zones %q, want none", name, zones(t, pod))
		}
	}

	if pod := f.get("whole-late"); pod.Spec.NodeName != "" {
		t.Fatalf("whole-late is on %s, want it pending: no node has a zone for it", pod.Spec.NodeName)
	}

	f.delete("whole-0")
	if got := zones(t, f.awaitPlaced("whole-late")); !strings.HasSuffix(got, "=3") {
		t.Errorf("whole-late has the zones %q, want a zone with 3", got)
	}
}

// TestBindingCarriesTopologyResult verifies that the scheduler writes a pod with whole CPUs once: the annotation comes with the binding.
func TestBindingCarriesTopologyResult(t *testing.T) {
	f := newFixture(t, startScheduler(t, setup{profile: topologyProfile("{}")}))
	f.machine("once", single, []string{"node0"}, 4)
	f.awaitCaches()

	events, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: fixtureLabel + "=" + f.label})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	f.pod("written", "2")
	f.awaitPlaced("written")

	var seen []string
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the watch returned %v, want a pod", e.Object)
		}

		seen = append(seen, fmt.Sprintf("%s node=%s zones=%s nominated=%s", e.Type, pod.Spec.NodeName, zones(t, pod), pod.Status.NominatedNodeName))
		if pod.Spec.NodeName != "" {
			break
		}
	}

	if want := []string{"ADDED node= zones= nominated=", "MODIFIED node=once zones=node0=2 nominated="}; !slices.Equal(seen, want) {
		t.Errorf("the pod changed as %q, want %q", seen, want)
	}
}

// TestMoreThanThereIs: 64 CPUs on a machine whose zones have 4 wait with the reason, where zones may be mixed as where not;
// what fits over all zones is spread.
func TestMoreThanThereIs(t *testing.T) {
	f := newFixture(t, startScheduler(t, setup{profile: topologyProfile("{}")}))
	f.machine("small", spread, []string{"node0", "node1"}, 2)
	f.pod("giant", "64")
	f.awaitPending("giant", "1 node(s) had insufficient resource of NUMA nodes (less than cpu=64 in all zones)")
	f.pod("one-zone", "3", func(p *corev1.Pod) {
		p.Annotations = map[string]string{topology.AnnotationPodTopologyAwareness: "true"}
	})
	f.awaitPending("one-zone", "no zone is as large as cpu=3")
	f.pod("both", "3")

	if got := zones(t, f.awaitPlaced("both")); got != "node0=2 node1=1" {
		t.Errorf("pod both has the zones %q, want node0=2 node1=1", got)
	}
}

// TestOddTopologies: no zones at all, names that are not node0, garbage in annotations. Scheduling goes on.
func TestOddTopologies(t *testing.T) {
	s := startScheduler(t, setup{profile: topologyProfile("{}")})
	f := newFixture(t, s)
	f.machine("zoneless", single, nil, 0)
	f.pod("anywhere", "2")

	if pod := f.awaitPlaced("anywhere"); zones(t, pod) != "" {
		t.Errorf("on a node without zones the pod got %q, want no zones", zones(t, pod))
	}
	if got := s.metric(t, `crane_scheduler_topology_unknown_total{reason="zoneless",result="pass"}`); got == "" || got == "0" {
		t.Errorf("the metric says %q, want a count above zero", got)
	}

	// Strangers' annotations on pods that run do not count.
	for i, garbage := range []string{
		`{"name":"left"}`, `[{"name":"left","type":"Node","resources":{"capacity":{"cpu":"-7"}}}]`,
		`[{"name":"left","type":"Node","resources":{"capacity":{"cpu":"1e308"}}}]`, `[{"name":"left"},{"name":"left"}]`, "\x00,,",
	} {
		name := fmt.Sprint("stranger-", i)
		f.pod(name, "1", func(p *corev1.Pod) { p.Spec.NodeName = "odd" })
		f.setResult(name, garbage)
	}

	// Sparse numbers, and zones of other types, which hold the same CPUs again.
	odd := f.machine("odd", single, []string{"node7", "node42"}, 4)
	odd.Zones = append(odd.Zones, topology.Zone{Name: "socket", Type: topology.ZoneTypeSocket, Resources: &topology.ResourceInfo{
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
	}})

	if err := topologies(t, control.Config()).Update(t.Context(), odd); err != nil {
		t.Fatal(err)
	}

	onOdd := func(p *corev1.Pod) { p.Spec.NodeSelector["kubernetes.io/hostname"] = "odd" }
	f.pod("named", "4", onOdd)
	f.awaitPending("named", "didn't match Pod's node affinity/selector")

	n, err := client.CoreV1().Nodes().Get(t.Context(), "odd", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	n.Labels["kubernetes.io/hostname"] = "odd"
	if _, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if got := zones(t, f.awaitPlaced("named")); got != "node7=4" {
		t.Errorf("the pod has the zones %q, want node7=4", got)
	}

	f.pod("socket-wide", "6", onOdd)
	f.awaitPending("socket-wide", "no zone is as large as cpu=6")

	if got := s.metric(t, "crane_scheduler_topology_invalid_results_total"); got != "5" {
		t.Errorf("%s annotations counted as not understood, want 5", got)
	}
}

// TestNodesComeAndGo: a pod waits until its node grows, another until a node comes; nothing goes to one that is gone.
func TestNodesComeAndGo(t *testing.T) {
	f := newFixture(t, startScheduler(t, setup{profile: topologyProfile("{missingTopology: Reject}")}))
	first := f.machine("first", single, []string{"node0"}, 2)
	f.pod("three", "3")
	f.awaitPending("three", "no zone is as large as cpu=3")

	first.Zones[0].Resources.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	if err := topologies(t, control.Config()).Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}

	if got := f.awaitPlaced("three"); got.Spec.NodeName != "first" || zones(t, got) != "node0=3" {
		t.Errorf("three is on %s with %q, want first and node0=3", got.Spec.NodeName, zones(t, got))
	}

	f.node("second", 200, nil)
	f.pod("two", "2")
	f.awaitPending("two", "1 node(s) had no NodeResourceTopology with NUMA zones")
	f.topology("second", single, []string{"node0"}, 2)

	if got := f.awaitPlaced("two").Spec.NodeName; got != "second" {
		t.Errorf("two is on %s, want second", got)
	}

	if err := client.CoreV1().Nodes().Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	f.pod("again", "2")
	f.awaitPending("again", "0/1 nodes are available: 1 node(s) had insufficient resource of NUMA node (no zone has cpu=2 free)")
	f.delete("three")

	if got := f.awaitPlaced("again").Spec.NodeName; got != "first" {
		t.Errorf("again is on %s, want first", got)
	}
}

// TestPreemption: a pod of high priority takes the zone of one of low priority, and no more than it needs.
func TestPreemption(t *testing.T) {
	f := newFixture(t, startScheduler(t, setup{profile: topologyProfile("{}")}))
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000}
	classes := client.SchedulingV1().PriorityClasses()
	if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = classes.Delete(context.WithoutCancel(t.Context()), class.Name, metav1.DeleteOptions{}) })
	f.machine("busy", single, []string{"node0", "node1"}, 4)
	f.pod("low-0", "4")
	f.awaitPlaced("low-0")
	f.pod("low-1", "4")
	f.awaitPlaced("low-1")
	f.pod("urgent", "4", func(p *corev1.Pod) { p.Spec.PriorityClassName = "urgent" })

	if got := zones(t, f.awaitPlaced("urgent")); got != "node0=4" && got != "node1=4" {
		t.Errorf("urgent has the zones %q, want one zone with 4", got)
	}

	left := 0
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: fixtureLabel + "=" + f.label})
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range list.Items {
		if strings.HasPrefix(p.Name, "low-") {
			left++
		}
	}

	if left != 1 {
		t.Errorf("%d of 2 pods of low priority are left, want 1", left)
	}
}

// TestRestart: a scheduler that was away knows what is held from the pods' annotations.
func TestRestart(t *testing.T) {
	first := startScheduler(t, setup{profile: topologyProfile("{}")})
	f := newFixture(t, first)
	f.machine("restart", single, []string{"node0", "node1"}, 4)
	f.pod("held", "3")
	f.awaitPlaced("held")

	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	f.pod("rest", "4")
	startScheduler(t, setup{profile: topologyProfile("{}")})

	if got, held := zones(t, f.awaitPlaced("rest")), zones(t, f.get("held")); got[:len("node0")] == held[:len("node0")] {
		t.Errorf("rest has %s and held %s, want different zones of 4", got, held)
	}

	f.pod("over", "1")
	if got := zones(t, f.awaitPlaced("over")); got != zones(t, f.get("held"))[:len("node0")]+"=1" {
		t.Errorf("over has %s, want the last CPU beside held", got)
	}

	f.pod("none", "1")
	f.awaitPending("none", "no zone has cpu=1 free")
}

// TestStaleAnnotationIsReplaced verifies that an annotation which pods have before they are scheduled, as those from before the admission
// policy, is replaced or removed.
func TestStaleAnnotationIsReplaced(t *testing.T) {
	f := newFixture(t, startScheduler(t, setup{profile: topologyProfile("{}")}))
	f.machine("copy", single, []string{"node0", "node1"}, 4)
	stale := func(name, cpu string) {
		f.pod(name, cpu, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "crane.io/test"}} })
		f.setResult(name, `[{"name":"node7","type":"Node","resources":{"capacity":{"cpu":"4"}}}]`)
		f.patch(name, `{"spec":{"schedulingGates":null}}`)
	}

	stale("with-cpus", "2")
	if got := zones(t, f.awaitPlaced("with-cpus")); got != "node0=2" {
		t.Errorf("with-cpus has the zones %q, want node0=2", got)
	}

	stale("without", "100m")
	if got := zones(t, f.awaitPlaced("without")); got != "" {
		t.Errorf("without whole CPUs the pod has the zones %q, want none", got)
	}
}
