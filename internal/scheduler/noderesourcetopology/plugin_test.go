// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/scheduler/pluginconfig"
)

// cycleState is a fwk.CycleState with the three methods that the plugin uses.
type cycleState struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func newCycleState() *cycleState { return &cycleState{data: map[fwk.StateKey]fwk.StateData{}} }

func (s *cycleState) Read(k fwk.StateKey) (fwk.StateData, error) {
	if d, ok := s.data[k]; ok {
		return d, nil
	}

	return nil, fwk.ErrNotFound
}
func (s *cycleState) Write(k fwk.StateKey, d fwk.StateData) { s.data[k] = d }
func (s *cycleState) Clone() fwk.CycleState {
	c := &cycleState{data: maps.Clone(s.data)}
	for k, d := range c.data {
		c.data[k] = d.Clone()
	}

	return c
}

// nodeInfo is the scheduler's view of a node; each change increases its generation.
type nodeInfo struct {
	fwk.NodeInfo
	node       corev1.Node
	pods       []fwk.PodInfo
	generation int64
}

func (n *nodeInfo) Node() *corev1.Node     { return &n.node }
func (n *nodeInfo) GetPods() []fwk.PodInfo { return n.pods }
func (n *nodeInfo) GetGeneration() int64   { return n.generation }

func (n *nodeInfo) add(pods ...*corev1.Pod) {
	for _, p := range pods {
		n.pods = append(n.pods, podInfo{pod: p})
	}
	n.generation = generations.Add(1)
}

func (n *nodeInfo) remove(uid types.UID) {
	n.pods = slices.DeleteFunc(slices.Clone(n.pods), func(p fwk.PodInfo) bool { return p.GetPod().UID == uid })
	n.generation = generations.Add(1)
}

func (n *nodeInfo) copy() *nodeInfo {
	return &nodeInfo{node: n.node, pods: slices.Clone(n.pods), generation: n.generation}
}

var generations atomic.Int64

type podInfo struct {
	fwk.PodInfo
	pod *corev1.Pod
}

func (p podInfo) GetPod() *corev1.Pod { return p.pod }

// queue records activated pods.
type queue struct{ woken []string }

func (q *queue) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for name := range pods {
		q.woken = append(q.woken, name)
	}
}

type option func(*corev1.Pod)

// newPod returns a pod with one container that requests exclusive CPUs.
func newPod(name, cpus string, options ...option) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
		}}},
	}

	for _, o := range options {
		o(pod)
	}

	return pod
}

func annotated(key, value string) option {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func on(node string) option { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func ownedBy(kind string) option {
	return func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner"}} }
}

// nrt returns a NodeResourceTopology with zones node0, node1, ... of that many CPUs.
func nrt(name string, cpus ...int) *topology.NodeResourceTopology {
	t := &topology.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		CraneManagerPolicy: topology.ManagerPolicy{
			CPUManagerPolicy: topology.CPUManagerPolicyStatic, TopologyManagerPolicy: topology.TopologyManagerPolicySingleNUMANodePodLevel,
		},
	}

	for i, c := range cpus {
		t.Zones = append(t.Zones, topology.Zone{
			Name: fmt.Sprint("node", i), Type: topology.ZoneTypeNode,
			Resources: &topology.ResourceInfo{Capacity: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(c), resource.DecimalSI)}},
		})
	}

	return t
}

func spreading(t *topology.NodeResourceTopology) *topology.NodeResourceTopology {
	t.CraneManagerPolicy.TopologyManagerPolicy = topology.TopologyManagerPolicyNone
	return t
}

func kubelets(t *topology.NodeResourceTopology) *topology.NodeResourceTopology {
	t.CraneManagerPolicy.CPUManagerPolicy = topology.CPUManagerPolicyNone
	return t
}

// apiOf is the api of a scheduler that writes synchronously.
type apiOf struct{ kubernetes.Interface }

func (a apiOf) ClientSet() kubernetes.Interface { return a.Interface }
func (apiOf) APICacher() fwk.APICacher          { return nil }

type fixture struct {
	*Plugin
	queue *queue
	nodes map[string]*nodeInfo
}

// info returns the scheduler's view of a node, created empty at its first use.
func (f fixture) info(name string) *nodeInfo {
	if f.nodes[name] == nil {
		f.nodes[name] = &nodeInfo{node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, generation: generations.Add(1)}
	}

	return f.nodes[name]
}

// reserve runs the cycle of a pod up to Reserve on a node, and adds it there as the scheduler does.
func (f fixture) reserve(t testing.TB, pod *corev1.Pod, node string) *fwk.Status {
	t.Helper()

	state, s := f.filter(t, pod, node)
	if !s.IsSuccess() {
		return s
	}

	if s := f.Reserve(context.Background(), state, pod, node); !s.IsSuccess() {
		return s
	}

	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	f.info(node).add(assumed)

	return nil
}

// bound returns a reserved pod as the informer shows it later, with the annotation of the Binding.
func (f fixture) bound(pod *corev1.Pod, node string) *corev1.Pod {
	b := pod.DeepCopy()
	b.Spec.NodeName = node
	if want := f.core.store.result(pod.UID, node); want != "" {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, topology.AnnotationPodTopologyResult, want)
	}

	f.info(node).remove(pod.UID)
	f.info(node).add(b)
	return b
}

func newPlugin(t testing.TB, topologies ...*topology.NodeResourceTopology) fixture {
	t.Helper()

	ready := make(chan struct{})
	close(ready)
	f := fixture{queue: &queue{}, nodes: map[string]*nodeInfo{}}
	f.Plugin = &Plugin{
		snapshot: func(node string) (fwk.NodeInfo, error) { return f.info(node), nil },
		core:     NewFactory().core, queue: f.queue, api: apiOf{fake.NewClientset()}, aware: []corev1.ResourceName{corev1.ResourceCPU},
		missing: pluginconfig.MissingTopologyPass, ready: ready,
	}

	for _, o := range topologies {
		f.core.topologyChanged(klog.Background(), o)
	}

	return f
}

// filter runs PreFilter and Filter of pod on a node.
func (f fixture) filter(t testing.TB, pod *corev1.Pod, node string) (*cycleState, *fwk.Status) {
	t.Helper()

	state := newCycleState()
	if _, s := f.PreFilter(context.Background(), state, pod, nil); !s.IsSuccess() {
		return state, s
	}

	return state, f.Filter(context.Background(), state, pod, f.info(node))
}

func TestFilter(t *testing.T) {
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		node    *topology.NodeResourceTopology
		missing pluginconfig.MissingTopology
		aware   []corev1.ResourceName
		code    fwk.Code
		reason  string
	}{
		"fits":                    {pod: newPod("p", "2"), node: nrt("n", 4, 4)},
		"no zone as large":        {pod: newPod("p", "6"), node: nrt("n", 4, 4), code: fwk.UnschedulableAndUnresolvable, reason: "no zone is as large as cpu=6"},
		"the node lets it spread": {pod: newPod("p", "6"), node: spreading(nrt("n", 4, 4))},
		"64 CPUs on 4":            {pod: newPod("p", "64"), node: spreading(nrt("n", 2, 2)), code: fwk.UnschedulableAndUnresolvable, reason: "less than cpu=64 in all zones"},
		"the pod wants one zone":  {pod: newPod("p", "6", annotated(topology.AnnotationPodTopologyAwareness, "1")), node: spreading(nrt("n", 4, 4)), code: fwk.UnschedulableAndUnresolvable, reason: "no zone is as large"},
		"the pod lets it spread":  {pod: newPod("p", "6", annotated(topology.AnnotationPodTopologyAwareness, "F")), node: nrt("n", 4, 4)},
		"a word that is no boolean leaves it to the node": {
			pod: newPod("p", "6", annotated(topology.AnnotationPodTopologyAwareness, "yes please")), node: nrt("n", 4, 4),
			code: fwk.UnschedulableAndUnresolvable, reason: "no zone is as large",
		},
		"kubelet assigns":            {pod: newPod("p", "64"), node: kubelets(nrt("n", 4))},
		"shared CPUs":                {pod: newPod("p", "64", annotated(topology.AnnotationPodCPUPolicy, "none")), node: nrt("n", 4), code: fwk.Skip},
		"an unknown policy is whole": {pod: newPod("p", "64", annotated(topology.AnnotationPodCPUPolicy, "x")), node: nrt("n", 4), code: fwk.UnschedulableAndUnresolvable, reason: "no zone is as large"},
		"a part of a CPU":            {pod: newPod("p", "1500m"), node: nrt("n", 1), code: fwk.Skip},
		"no CPU":                     {pod: newPod("p", "0"), node: nrt("n", 1), code: fwk.Skip},
		"of a DaemonSet":             {pod: newPod("p", "64", ownedBy("DaemonSet")), node: nrt("n", 4), code: fwk.Skip},
		"of a ReplicaSet":            {pod: newPod("p", "64", ownedBy("ReplicaSet")), node: nrt("n", 4), code: fwk.UnschedulableAndUnresolvable, reason: "no zone is as large"},
		"cpu is not minded":          {pod: newPod("p", "64"), node: nrt("n", 4), aware: []corev1.ResourceName{"memory"}, code: fwk.Skip},
		"nothing known":              {pod: newPod("p", "64")},
		"nothing known, refused":     {pod: newPod("p", "64"), missing: pluginconfig.MissingTopologyReject, code: fwk.UnschedulableAndUnresolvable, reason: "no NodeResourceTopology"},
		"no zones":                   {pod: newPod("p", "1"), node: nrt("n")},
		"no zones, refused":          {pod: newPod("p", "1"), node: nrt("n"), missing: pluginconfig.MissingTopologyReject, code: fwk.UnschedulableAndUnresolvable, reason: "no NodeResourceTopology with NUMA zones"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPlugin(t)
			if c.node != nil {
				f.core.topologyChanged(klog.Background(), c.node)
			}
			if c.missing != "" {
				f.missing = c.missing
			}
			if c.aware != nil {
				f.aware = c.aware
			}

			_, s := f.filter(t, c.pod, "n")
			if s.Code() != c.code || !strings.Contains(s.Message(), c.reason) {
				t.Errorf("got %v %q, want %v with %q", s.Code(), s.Message(), c.code, c.reason)
			}
		})
	}
}

func TestReserveHoldsAndUnreserveLetsGo(t *testing.T) {
	f := newPlugin(t, nrt("n", 4, 4))
	for _, name := range []string{"a", "b"} {
		if s := f.reserve(t, newPod(name, "3"), "n"); !s.IsSuccess() {
			t.Fatalf("Reserve of %s = %v, want success", name, s)
		}
	}

	if s := f.reserve(t, newPod("c", "2"), "n"); s.Code() != fwk.Unschedulable || !strings.Contains(s.Message(), "no zone has cpu=2 free") {
		t.Fatalf("Reserve of c without a free zone = %v, want Unschedulable for lack of a zone with 2 free CPUs", s)
	}

	unreserve := func(name string) {
		f.Unreserve(t.Context(), newCycleState(), newPod(name, "3"), "n")
		f.info("n").remove(types.UID(name))
	}
	unreserve("a")
	unreserve("a") // may come twice
	unreserve("nobody")

	if s := f.reserve(t, newPod("c", "2"), "n"); !s.IsSuccess() {
		t.Fatalf("Reserve after Unreserve of a = %v, want success", s)
	}

	b := f.bound(newPod("b", "3"), "n")
	f.info("n").remove("b")
	f.core.podDeleted(klog.Background(), b)

	if s := f.reserve(t, newPod("d", "4"), "n"); !s.IsSuccess() {
		t.Fatalf("Reserve after the deletion of b = %v, want success", s)
	}

	if len(f.core.store.assumedNodes) != 2 {
		t.Errorf("assumed are %v, want c and d", f.core.store.assumedNodes)
	}
}

// TestReserveTwice checks that a pod counts once, also if another is reserved before the scheduler's view changes.
func TestReserveTwice(t *testing.T) {
	f := newPlugin(t, nrt("n", 4))
	state, _ := f.filter(t, newPod("p", "2"), "n")
	for range 3 {
		if s := f.Reserve(t.Context(), state, newPod("p", "2"), "n"); !s.IsSuccess() {
			t.Fatalf("repeated Reserve of p = %v, want success", s)
		}
	}

	state, _ = f.filter(t, newPod("q", "2"), "n")
	if s := f.Reserve(t.Context(), state, newPod("q", "2"), "n"); !s.IsSuccess() {
		t.Fatalf("Reserve of q on the other 2 CPUs = %v, want success", s)
	}

	if _, s := f.filter(t, newPod("r", "1"), "n"); s.Code() != fwk.Unschedulable {
		t.Errorf("Filter with 4 of 4 CPUs reserved = %v, want Unschedulable", s)
	}

	f.info("n").add() // the view changes and still shows none of them
	if _, s := f.filter(t, newPod("r", "1"), "n"); s.Code() != fwk.Unschedulable {
		t.Errorf("Filter with 4 of 4 CPUs reserved, after a change of the node = %v, want Unschedulable", s)
	}
}

// TestReserveLooksAgain reserves zones that another pod took between Filter and Reserve.
func TestReserveLooksAgain(t *testing.T) {
	f := newPlugin(t, nrt("n", 4))
	pod := newPod("p", "3")
	state, s := f.filter(t, pod, "n")
	if !s.IsSuccess() {
		t.Fatalf("Filter = %v, want success", s)
	}

	other := newPod("other", "2", on("n"), annotated(topology.AnnotationPodTopologyResult, `[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"2"}}}]`))
	f.info("n").add(other)

	if s := f.Reserve(t.Context(), state, pod, "n"); s.Code() != fwk.Unschedulable || s.Message() != reasonTaken {
		t.Fatalf("Reserve after another pod took the zone = %v, want Unschedulable with %q", s, reasonTaken)
	}

	f.info("n").remove("other")
	if s := f.Reserve(t.Context(), state, pod, "n"); !s.IsSuccess() {
		t.Fatalf("Reserve after the other pod left = %v, want success", s)
	}
}

// TestAssumedUntilSeen checks that an assumption ends when the annotation arrives, and not with that of a copied
// manifest.
func TestAssumedUntilSeen(t *testing.T) {
	f := newPlugin(t, nrt("n", 4, 4))
	pod := newPod("p", "4", annotated(topology.AnnotationPodTopologyResult, `[{"name":"node1","type":"Node","resources":{"capacity":{"cpu":"4"}}}]`))
	if s := f.reserve(t, pod, "n"); !s.IsSuccess() {
		t.Fatalf("Reserve of p = %v, want success", s)
	}

	free := func() string {
		f.filter(t, newPod("other", "1"), "n")
		var parts []string
		for _, s := range f.core.store.state("n").account.Free() {
			parts = append(parts, s.Zone+" "+s.Resources.String())
		}

		return strings.Join(parts, ", ")
	}

	if got := free(); got != "node0 cpu=0, node1 cpu=4" || len(f.core.store.assumedNodes) != 1 {
		t.Errorf("reserved: free are %s, assumed %v, want 4 CPUs of node1 and one assumption", got, f.core.store.assumedNodes)
	}

	f.bound(pod, "n")
	if got := free(); got != "node0 cpu=0, node1 cpu=4" || len(f.core.store.assumedNodes) != 0 || len(f.core.store.state("n").assumed) != 0 {
		t.Errorf("annotation seen: free are %s, assumed %v, want 4 CPUs of node1 and no assumption", got, f.core.store.assumedNodes)
	}

	f.info("n").remove("p")
	if got := free(); got != "node0 cpu=4, node1 cpu=4" {
		t.Errorf("pod deleted: free are %s, want 4 CPUs in both zones", got)
	}

	// A copied annotation that happens to be right must not be mistaken for that of the Binding.
	right := newPod("copy", "4", annotated(topology.AnnotationPodTopologyResult, `[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"4"}}}]`))
	if s := f.reserve(t, right, "n"); !s.IsSuccess() {
		t.Fatalf("Reserve of copy = %v, want success", s)
	}

	free()
	if _, s := f.PreBindPreFlight(t.Context(), newCycleState(), right, "n"); s.Code() != fwk.Skip {
		t.Errorf("PreBindPreFlight with the right annotation = %v, want Skip", s)
	}

	f.info("n").remove("copy")
	f.core.podDeleted(klog.Background(), right)

	// A deleted arriving pod is removed.
	if s := f.reserve(t, newPod("q", "4"), "n"); !s.IsSuccess() {
		t.Fatalf("Reserve of q = %v, want success", s)
	}

	f.info("n").remove("q")
	f.core.podDeleted(klog.Background(), newPod("q", "4"))

	if got := free(); got != "node0 cpu=4, node1 cpu=4" || len(f.core.store.assumedNodes) != 0 {
		t.Errorf("deleted before its binding: free are %s, assumed %v, want 4 CPUs in both zones and no assumption", got, f.core.store.assumedNodes)
	}
}

func TestScore(t *testing.T) {
	near := spreading(nrt("near", 4, 4))
	near.Zones[0].Costs = []topology.CostInfo{{Name: "node1", Value: 11}}

	f := newPlugin(t, nrt("one", 8), near, spreading(nrt("far", 4, 4)), spreading(nrt("three", 2, 2, 2)), kubelets(nrt("kubelet", 8)))
	state, s := f.filter(t, newPod("p", "6"), "one")
	if !s.IsSuccess() {
		t.Fatalf("Filter = %v, want success", s)
	}

	got := map[string]int64{}
	var list fwk.NodeScoreList
	for _, n := range []string{"one", "near", "far", "three", "kubelet", "unknown"} {
		score, s := f.Score(t.Context(), state, newPod("p", "6"), f.info(n))
		if !s.IsSuccess() {
			t.Fatalf("Score of %s = %v, want success", n, s)
		}

		list = append(list, fwk.NodeScore{Name: n, Score: score})
	}

	if s := f.NormalizeScore(t.Context(), state, nil, list); !s.IsSuccess() {
		t.Fatalf("NormalizeScore = %v, want success", s)
	}

	for _, n := range list {
		got[n.Name] = n.Score
	}

	// 100; 33.3+16.7·10/11; 33.3+16.7·10/20; 25+8.3·10/20; twice the mean of these.
	want := map[string]int64{"one": 100, "near": 48, "far": 42, "three": 29, "kubelet": 54, "unknown": 54}
	if !maps.Equal(got, want) {
		t.Errorf("NormalizeScore = %v, want %v", got, want)
	}

	// Where no node is known, all are equal.
	list = fwk.NodeScoreList{{Name: "a", Score: noScore}, {Name: "b", Score: noScore}}
	f.NormalizeScore(t.Context(), state, nil, list)

	if list[0].Score != 0 || list[1].Score != 0 {
		t.Errorf("NormalizeScore without a known node = %v, want 0 for all", list)
	}
	if s := f.PreScore(t.Context(), newCycleState(), newPod("p", "500m"), nil); s.Code() != fwk.Skip {
		t.Errorf("PreScore of a pod without whole CPUs = %v, want Skip", s)
	}
}

// TestTrials checks that a preemption's trial on a copy of the view does not change the account.
func TestTrials(t *testing.T) {
	f := newPlugin(t, nrt("n", 4))
	victim := newPod("victim", "3")
	if s := f.reserve(t, victim, "n"); !s.IsSuccess() {
		t.Fatalf("Reserve of the victim = %v, want success", s)
	}

	victim = f.bound(victim, "n")
	pod := newPod("p", "2")
	state, s := f.filter(t, pod, "n")
	if s.Code() != fwk.Unschedulable {
		t.Fatalf("Filter beside the victim = %v, want Unschedulable", s)
	}

	trial := f.info("n").copy()
	for _, step := range []struct {
		what string
		do   func()
		want fwk.Code
	}{
		{"the copy as it is", func() {}, fwk.Unschedulable},
		{"victim removed", func() { trial.remove("victim") }, fwk.Success},
		{"victim back", func() { trial.add(victim) }, fwk.Unschedulable},
		{"victim removed again", func() { trial.remove("victim") }, fwk.Success},
		{"a nominated pod of 3", func() { trial.add(newPod("nominated", "3")) }, fwk.Unschedulable},
		{"gone", func() { trial.remove("nominated") }, fwk.Success},
	} {
		step.do()
		if got := f.Filter(t.Context(), state, pod, trial); got.Code() != step.want {
			t.Errorf("%s: Filter of the copy = %v, want %v", step.what, got, step.want)
		}
		if got := f.Filter(t.Context(), state, pod, f.info("n")); got.Code() != fwk.Unschedulable {
			t.Errorf("%s: Filter of the node itself = %v, want Unschedulable", step.what, got)
		}
	}
}
