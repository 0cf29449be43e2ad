// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"crane.io/crane/internal/scheduler/simulate/peer"
	"crane.io/crane/internal/scheduler/simulate/quality"
	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

// simulation is the state of a run, owned by one goroutine.
type simulation struct {
	spec   *simscenario.Scenario
	world  *simcluster.World
	truth  *simcluster.Truth
	meter  *simcluster.Meter
	seed   uint64
	policy peer.Policy
	events events
	now    time.Duration
	epoch  time.Time
	logger klog.Logger
	// recreate creates a moved pod again.
	recreate func(pod int)

	framework framework.Framework
	cache     internalcache.Cache
	snapshot  *internalcache.Snapshot
	informers *informerSet
	cycle     cycle
	nodeIndex map[string]int
	nodes     []*corev1.Node
	// pods are the objects of running pods, by index; nil for others.
	pods []*corev1.Pod
	// generation counts the placements of a pod, ends is when it ends; 0 before its first placement.
	generation []int
	ends       []time.Duration
	pending    []waiting

	tally         quality.Tally
	cpu, memory   []float64
	milli         []int64
	placed        int
	unschedulable int
	moves         int
	patches       int
	waited        float64
	digest        hash.Hash64
	err           error
}

func newSimulation(ctx context.Context, s *simscenario.Scenario, w *simcluster.World, seed uint64, policy func(peer.Env) peer.Policy) (*simulation, error) {
	metrics.Register() // upstream's cache and framework need registered metrics; they are not read here
	sim := &simulation{
		spec:       s,
		world:      w,
		truth:      simcluster.NewTruth(w),
		meter:      simcluster.NewMeter(s.Metrics, len(w.Nodes), seed),
		seed:       seed,
		epoch:      time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC),
		logger:     klog.FromContext(ctx),
		cache:      internalcache.New(ctx, nil, false),
		snapshot:   internalcache.NewEmptySnapshot(),
		nodeIndex:  make(map[string]int, len(w.Nodes)),
		nodes:      make([]*corev1.Node, len(w.Nodes)),
		pods:       make([]*corev1.Pod, len(w.Pods)),
		generation: make([]int, len(w.Pods)),
		ends:       make([]time.Duration, len(w.Pods)),
		cpu:        make([]float64, len(w.Nodes)),
		memory:     make([]float64, len(w.Nodes)),
		milli:      make([]int64, len(w.Nodes)),
		digest:     fnv.New64a(),
	}

	client, err := unreachableClient()
	if err != nil {
		return nil, err
	}

	sim.informers = newInformers(client)
	sim.recreate = func(pod int) { sim.arrive(ctx, pod) }
	sim.policy = policy(sim)
	if sim.framework, err = newFramework(ctx, sim.policy, sim.snapshot, sim.informers, client); err != nil {
		return nil, err
	}

	sim.cycle = cycle{framework: sim.framework, percentage: int(s.Scheduler.PercentageOfNodesToScore), tie: sim.tie}
	for i, n := range w.Nodes {
		sim.nodes[i] = nodeObject(n)
		sim.nodeIndex[n.Name] = i
		sim.milli[i] = int64(n.CPU)
		sim.cache.AddNode(sim.logger, sim.nodes[i])
		sim.informers.nodes.add(sim.nodes[i])
	}

	return sim, nil
}

func (s *simulation) close() {
	// A plugin that cannot be closed has nothing that outlives the run's context.
	if err := s.framework.Close(); err != nil {
		s.logger.Error(err, "closing the framework")
	}
}

func (s *simulation) result() quality.Run {
	r := s.tally.Run()
	r.Placed = s.placed
	r.Unschedulable = s.unschedulable
	r.Waited = s.waited
	r.Moves = s.moves
	r.Patches = s.patches
	r.Placements = strconv.FormatUint(s.digest.Sum64(), 16)

	return r
}

func (s *simulation) object(pod int) *corev1.Pod {
	object := podObject(s.world, pod, metav1.NewTime(s.Clock()))
	if g := s.generation[pod]; g > 0 {
		object.UID += types.UID("." + strconv.Itoa(g))
	}

	return object
}

// bind executes a placement: the pod runs, its end is set, and watchers of pods are notified.
func (s *simulation) bind(pod, node int, object *corev1.Pod) {
	if err := s.truth.Place(pod, node, s.now); err != nil {
		s.fail(err)
		return
	}

	s.placed++
	// The digest identifies the placements of a run: which pod, which node, when.
	var record [24]byte
	binary.LittleEndian.PutUint64(record[:], uint64(pod))
	binary.LittleEndian.PutUint64(record[8:], uint64(node))
	binary.LittleEndian.PutUint64(record[16:], uint64(s.now))
	s.digest.Write(record[:])

	object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.Clock())}}
	s.pods[pod] = object
	s.informers.pods.add(object)

	if s.policy.Bound != nil {
		s.policy.Bound(pod, node)
	}
	if s.ends[pod] == 0 {
		s.ends[pod] = s.now + s.world.Pods[pod].Lifetime
	}

	// A moved pod keeps its end, but the event of its earlier placement must not end it.
	generation := s.generation[pod]
	s.events.add(s.ends[pod], func() {
		if s.generation[pod] == generation {
			s.remove(pod)
		}
	})

	if len(s.informers.pods.handlers) > 0 {
		s.events.add(s.now+s.spec.Workloads.Startup.Duration, func() { s.started(pod, object) })
	}
}

// started notifies watchers of pods that the containers of a pod run, if it is still the same placement.
func (s *simulation) started(pod int, object *corev1.Pod) {
	if s.pods[pod] != object {
		return
	}

	running := *object
	running.Status.Phase = corev1.PodRunning
	since := metav1.NewTime(s.Clock())
	running.Status.StartTime = &since
	running.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: object.Spec.Containers[0].Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}},
	}}
	s.pods[pod] = &running
	s.informers.pods.update(object, &running)
}

// remove ends a pod: it has run its time, or is created again elsewhere.
func (s *simulation) remove(pod int) {
	object := s.pods[pod]
	node, err := s.truth.Remove(pod)
	if err == nil {
		err = s.cache.RemovePod(s.logger, object)
	}

	if err != nil {
		s.fail(fmt.Errorf("ending a pod: %w", err))
		return
	}

	s.pods[pod] = nil
	defer func() { s.generation[pod]++ }()

	s.informers.pods.remove(object)
	if s.policy.Removed != nil {
		s.policy.Removed(pod, node)
	}
}

// tie breaks ties between nodes of one score.
func (s *simulation) tie(pod *corev1.Pod, node string) uint64 {
	return simcluster.Hash(s.seed, uint64(podIndex(pod)), uint64(s.nodeIndex[node]))
}

// The methods of peer.Env.

var _ peer.Env = &simulation{}

func (s *simulation) Spec() *simscenario.Scenario  { return s.spec }
func (s *simulation) World() *simcluster.World     { return s.world }
func (s *simulation) Truth() *simcluster.Truth     { return s.truth }
func (s *simulation) Meter() *simcluster.Meter     { return s.meter }
func (s *simulation) Now() time.Duration           { return s.now }
func (s *simulation) Clock() time.Time             { return s.epoch.Add(s.now) }
func (s *simulation) WriterClock() time.Time       { return s.Clock().Add(s.spec.Metrics.ClockSkew.Duration) }
func (s *simulation) Node(name string) int         { return s.nodeIndex[name] }
func (s *simulation) Pod(pod *corev1.Pod) int      { return podIndex(pod) }
func (s *simulation) At(t time.Duration, f func()) { s.events.add(max(t, s.now), f) }

func (s *simulation) Random(a, b int) float64 {
	return float64(simcluster.Hash(s.seed, uint64(a), uint64(b))>>11) / (1 << 53)
}

func (s *simulation) Annotate(node int, annotations map[string]string) {
	old := s.nodes[node]
	changed := *old
	changed.Annotations = maps.Clone(old.Annotations)
	if changed.Annotations == nil {
		changed.Annotations = make(map[string]string, len(annotations))
	}

	maps.Copy(changed.Annotations, annotations)
	s.nodes[node] = &changed
	s.patches++
	s.cache.UpdateNode(s.logger, old, &changed)
	s.informers.nodes.update(old, &changed)
}
