// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// start is the start time of every test.
func start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// state is a CycleState.
type state struct {
	fwk.CycleState
	data sync.Map
}

func (s *state) Read(key fwk.StateKey) (fwk.StateData, error) {
	if v, ok := s.data.Load(key); ok {
		return v.(fwk.StateData), nil
	}

	return nil, fwk.ErrNotFound
}

func (s *state) Write(key fwk.StateKey, v fwk.StateData) { s.data.Store(key, v) }

// nodeInfo is a NodeInfo with the given requests.
type nodeInfo struct {
	fwk.NodeInfo
	node      *corev1.Node
	requested requested
}

func (i *nodeInfo) Node() *corev1.Node         { return i.node }
func (i *nodeInfo) GetRequested() fwk.Resource { return i.requested }

type requested struct {
	fwk.Resource
	cpu, memory int64
}

func (r requested) GetMilliCPU() int64 { return r.cpu }
func (r requested) GetMemory() int64   { return r.memory }

// fixedPolicy is a policy source set by a test.
type fixedPolicy struct{ policy *nodeload.Policy }

func (f *fixedPolicy) Policy() *nodeload.Policy { return f.policy }

// recorded collects events.
type recorded struct {
	mu    sync.Mutex
	notes []string
}

func (r *recorded) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.notes = append(r.notes, reason+": "+fmt.Sprintf(note, args...))
}

// fixture is a plugin with nodes.
type fixture struct {
	testing.TB
	*Plugin
	clock    *clocktesting.FakeClock
	policies *fixedPolicy
	events   *recorded
	registry metrics.KubeRegistry
	infos    []fwk.NodeInfo
}

func newFixture(t testing.TB, strategy nodeload.Strategy, nodes ...*corev1.Node) *fixture {
	t.Helper()

	b := &fixture{
		TB: t, clock: clocktesting.NewFakeClock(start()), policies: &fixedPolicy{policyOf(t, nodeload.GocraneSpec())},
		events: &recorded{}, registry: metrics.NewKubeRegistry(),
	}

	all := NewMetrics()
	if err := all.Register(b.registry.Register); err != nil {
		t.Fatalf("Register: %v, want no error", err)
	}

	b.Plugin = &Plugin{
		cluster: cluster{clock: b.clock, policies: b.policies, strategy: strategy, minFresh: nodeload.DefaultMinFresh, log: logr.Discard()},
		pods:    podTracker{history: &History{}}, profile: "test",
		snapshot: func() ([]fwk.NodeInfo, error) { return b.infos, nil },
	}

	b.Plugin.peers = func() []*Plugin { return []*Plugin{b.Plugin} }
	if err := b.Plugin.start(all, b.events); err != nil {
		t.Fatalf("start: %v, want no error", err)
	}

	for _, n := range nodes {
		b.infos = append(b.infos, &nodeInfo{node: n, requested: requested{cpu: 5_000, memory: 50 << 30}})
	}

	return b
}

func policyOf(t testing.TB, spec nodeload.Spec) *nodeload.Policy {
	t.Helper()

	p, err := nodeload.NewPolicy(spec)
	if err != nil {
		t.Fatalf("NewPolicy: %v, want no error", err)
	}

	return p
}

// replace replaces the object of a node in the snapshot.
func (b *fixture) replace(node *corev1.Node) {
	for i, info := range b.infos {
		if info.Node().Name == node.Name {
			b.infos[i] = &nodeInfo{node: node, requested: info.(*nodeInfo).requested}
		}
	}
}

// schedule runs the plugin for a pod up to scores, as the framework does, and returns its answer for every node.
func (b *fixture) schedule(pod *corev1.Pod) (*state, map[string]string, map[string]int64) {
	b.Helper()

	s := &state{}
	reasons := map[string]string{}
	scores := map[string]int64{}
	ctx := b.Context()

	_, status := b.PreFilter(ctx, s, pod, b.infos)
	skip := status.IsSkip()
	if !skip && !status.IsSuccess() {
		b.Fatalf("PreFilter of %s = %v, want success or Skip", pod.Name, status)
	}

	var feasible []fwk.NodeInfo
	for _, info := range b.infos {
		if !skip {
			if status := b.Filter(ctx, s, pod, info); !status.IsSuccess() {
				if status.Code() != fwk.UnschedulableAndUnresolvable {
					b.Fatalf("Filter of %s on %s = %v, want success or UnschedulableAndUnresolvable", pod.Name, info.Node().Name, status.Code())
				}

				reasons[info.Node().Name] = status.Message()
				continue
			}
		}

		feasible = append(feasible, info)
	}

	if status := b.PreScore(ctx, s, pod, feasible); status.IsSkip() {
		return s, reasons, nil
	}

	var list fwk.NodeScoreList
	for _, info := range feasible {
		score, status := b.Score(ctx, s, pod, info)
		if !status.IsSuccess() {
			b.Fatalf("Score of %s on %s = %v, want success", pod.Name, info.Node().Name, status)
		}

		list = append(list, fwk.NodeScore{Name: info.Node().Name, Score: score})
	}

	if status := b.NormalizeScore(ctx, s, pod, list); !status.IsSuccess() {
		b.Fatalf("NormalizeScore of %s = %v, want success", pod.Name, status)
	}

	for _, n := range list {
		if n.Score < fwk.MinScore || n.Score > fwk.MaxScore {
			b.Fatalf("NormalizeScore gives %s %d, want %d to %d", n.Name, n.Score, fwk.MinScore, fwk.MaxScore)
		}

		scores[n.Name] = n.Score
	}

	return s, reasons, scores
}

// placePod runs a whole cycle: the first by name of the best nodes is selected. It returns "" if there is none.
func (b *fixture) placePod(pod *corev1.Pod) string {
	b.Helper()

	s, _, scores := b.schedule(pod)
	best := ""
	for _, name := range sortedNames(scores) {
		if best == "" || scores[name] > scores[best] {
			best = name
		}
	}

	if best != "" {
		if status := b.Reserve(b.Context(), s, pod, best); !status.IsSuccess() {
			b.Fatalf("Reserve of %s on %s = %v, want success", pod.Name, best, status)
		}
	}

	return best
}

// loadAnnotations returns every metric of gocrane's policy, measured at one time.
func loadAnnotations(cpu, memory float64, measured time.Time) map[string]string {
	annotations := map[string]string{"unrelated": "1"}
	for _, m := range nodeload.GocraneSpec().Metrics {
		value := cpu
		if nodeload.ResourceOf(m.Name) == units.Memory {
			value = memory
		}

		annotations[m.Name] = fmt.Sprintf("%.5f,%s", value, measured.UTC().Format("2006-01-02T15:04:05Z"))
	}

	return annotations
}

// newNode returns a node of 10 cores and 100 GiB.
func newNode(name string, annotations map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Annotations: maps.Clone(annotations)},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("100Gi"),
		}},
	}
}

// newPod returns a pod with one container and the given requests.
func newPod(name, cpu, memory string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		}}}},
	}
}

// bindTo returns the pod bound to a node.
func bindTo(pod *corev1.Pod, node string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	return pod
}

// newRunningPod returns the pod on a node, running since a time.
func newRunningPod(pod *corev1.Pod, node string, since time.Time) *corev1.Pod {
	pod = bindTo(pod, node)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
	}}

	return pod
}

func owned(pod *corev1.Pod, kind, name string) *corev1.Pod {
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}
	return pod
}
