// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simcluster

import (
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/units"
)

// Node is a machine.
type Node struct {
	Name   string
	CPU    units.MilliCPU
	Memory units.Bytes
}

// Workload is a group of similar pods.
type Workload struct {
	CPU    units.MilliCPU
	Memory units.Bytes
	// PerRequest is the mean use of CPU relative to the request, over a day and over pods.
	PerRequest float64
	// MemoryPerRequest is the use of memory relative to the request.
	MemoryPerRequest float64
	// amplitude relative to the mean and peak (time of day) of the daily cycle.
	amplitude float64
	peak      time.Duration
}

// Pod is one pod, in order of arrival.
type Pod struct {
	// Workload is an index in World.Workloads.
	Workload int
	CPU      units.MilliCPU
	Memory   units.Bytes
	// Arrival is when it is created, from the start of the simulation.
	Arrival time.Duration
	// Lifetime is how long it runs from its placement on.
	Lifetime time.Duration
	// factor of its use relative to its workload's.
	factor float64
	seed   uint64
}

// World is the simulated cluster before scheduling: nodes, workloads and arrivals.
type World struct {
	Nodes     []Node
	Workloads []Workload
	Pods      []Pod
	// start is the time of day at time 0.
	start, startup time.Duration
	noise          float64
	noisePeriod    time.Duration
}

const day = 24 * time.Hour

// MeanUse is what a pod uses of CPU at time t, without the noise of the moment and whether or not it has started.
func (w *World) MeanUse(pod int, t time.Duration) units.MilliCPU {
	p := &w.Pods[pod]
	return units.MilliCPU(float64(p.CPU) * p.factor * w.Workloads[p.Workload].atTime(w.start+t))
}

// MemoryUse is what a pod uses of memory once it runs.
func (w *World) MemoryUse(pod int) units.Bytes {
	p := &w.Pods[pod]
	return units.Bytes(float64(p.Memory) * w.Workloads[p.Workload].MemoryPerRequest)
}

// CPU is the sum of all nodes' CPU.
func (w *World) CPU() units.MilliCPU {
	var sum units.MilliCPU
	for _, n := range w.Nodes {
		sum += n.CPU
	}

	return sum
}

// smooth is value noise: independent values of variance 1 at whole x, a smooth way between them.
func smooth(seed uint64, x float64) float64 {
	floor := math.Floor(x)
	f := x - floor
	a := lattice(seed, uint64(int64(floor)))
	b := lattice(seed, uint64(int64(floor)+1))
	s := f * f * (3 - 2*f)

	return a + (b-a)*s
}

// lattice is a value of variance 1, uniform, that depends on nothing but its arguments.
func lattice(seed, i uint64) float64 {
	const width = 2 * 1.7320508075688772 // 2 √3: the width of a uniform distribution of variance 1
	return (float64(mix(seed^mix(i))>>11)/(1<<53) - 0.5) * width
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb

	return x ^ (x >> 31)
}

// Hash is a number that depends on its arguments alone and looks random.
func Hash(seed, a, b uint64) uint64 { return mix(seed ^ mix(a^mix(b))) }

// What a scheduler must never do.
var (
	// ErrPlacedTwice means that a pod was placed that runs already.
	ErrPlacedTwice = errors.New("the pod runs already")
	// ErrNotPlaced means that a pod was removed that does not run.
	ErrNotPlaced = errors.New("the pod does not run")
	// ErrOverCapacity means that the requests on a node are more than it has.
	ErrOverCapacity = errors.New("the node has no room for the request")
)

// Truth is where pods run and what nodes really use.
type Truth struct {
	w *World
	// nodeOf is by pod the node, -1 while it does not run; since is when it was placed; runningIndex is its index in running.
	nodeOf       []int32
	runningIndex []int32
	since        []time.Duration
	running      []int32
	// requested of each node.
	requestedCPU    []units.MilliCPU
	requestedMemory []units.Bytes
	memory          []units.Bytes
	// cpu use of each node and of each pod at the last Sample; cycle is scratch, by workload.
	cpu   []float64
	use   []float32
	cycle []float64
}

// NewTruth returns the truth of a world before any pod is placed.
func NewTruth(w *World) *Truth {
	t := &Truth{
		w:               w,
		nodeOf:          make([]int32, len(w.Pods)),
		runningIndex:    make([]int32, len(w.Pods)),
		since:           make([]time.Duration, len(w.Pods)),
		requestedCPU:    make([]units.MilliCPU, len(w.Nodes)),
		requestedMemory: make([]units.Bytes, len(w.Nodes)),
		memory:          make([]units.Bytes, len(w.Nodes)),
		cpu:             make([]float64, len(w.Nodes)),
		use:             make([]float32, len(w.Pods)),
		cycle:           make([]float64, len(w.Workloads)),
	}

	for i := range t.nodeOf {
		t.nodeOf[i] = -1
	}

	return t
}

// Place runs a pod on a node from the given time on.
func (t *Truth) Place(pod, node int, at time.Duration) error {
	p := &t.w.Pods[pod]
	n := &t.w.Nodes[node]
	if t.nodeOf[pod] >= 0 {
		return fmt.Errorf("pod %d on %s: %w", pod, n.Name, ErrPlacedTwice)
	}

	if !t.Fits(pod, node) {
		return fmt.Errorf("pod %d on %s: %w", pod, n.Name, ErrOverCapacity)
	}

	t.nodeOf[pod] = int32(node)
	t.since[pod] = at
	t.runningIndex[pod] = int32(len(t.running))
	t.running = append(t.running, int32(pod))
	t.requestedCPU[node] += p.CPU
	t.requestedMemory[node] += p.Memory
	t.memory[node] += t.w.MemoryUse(pod)

	return nil
}

// Fits reports whether a node has room for what a pod requests.
func (t *Truth) Fits(pod, node int) bool {
	p := &t.w.Pods[pod]
	n := &t.w.Nodes[node]
	return t.requestedCPU[node]+p.CPU <= n.CPU && t.requestedMemory[node]+p.Memory <= n.Memory
}

// Remove ends a pod and returns the node that it ran on.
func (t *Truth) Remove(pod int) (int, error) {
	node := int(t.nodeOf[pod])
	if node < 0 {
		return 0, fmt.Errorf("pod %d: %w", pod, ErrNotPlaced)
	}

	p := &t.w.Pods[pod]
	last := t.running[len(t.running)-1]
	t.running[t.runningIndex[pod]] = last
	t.runningIndex[last] = t.runningIndex[pod]
	t.running = t.running[:len(t.running)-1]
	t.nodeOf[pod] = -1
	t.requestedCPU[node] -= p.CPU
	t.requestedMemory[node] -= p.Memory
	t.memory[node] -= t.w.MemoryUse(pod)

	return node, nil
}

// NodeOf is the node that a pod runs on, or -1.
func (t *Truth) NodeOf(pod int) int { return int(t.nodeOf[pod]) }

// Running are the pods that run, in no order. It is valid until the next change.
func (t *Truth) Running() []int32 { return t.running }

// Since is when a running pod was placed.
func (t *Truth) Since(pod int) time.Duration { return t.since[pod] }

// PodUse is what a running pod used at the last Sample, in thousandths of a core.
func (t *Truth) PodUse(pod int) float64 { return float64(t.use[pod]) }

// Sample computes the use of every node at time now. cpu and memory hold a share of the capacity of each node and are overwritten;
// the CPU is above 1 where the demand of pods exceeds the capacity.
func (t *Truth) Sample(now time.Duration, cpu, memory []float64) {
	clear(t.cpu)
	for i := range t.cycle {
		t.cycle[i] = t.w.Workloads[i].atTime(t.w.start + now)
	}

	moment := float64(now) / float64(max(1, t.w.noisePeriod))
	for _, pod := range t.running {
		use := 0.0
		if now >= t.since[pod]+t.w.startup {
			p := &t.w.Pods[pod]
			use = float64(p.CPU) * p.factor * t.cycle[p.Workload]
			if t.w.noise > 0 {
				use *= max(0, 1+t.w.noise*smooth(p.seed, moment))
			}
		}

		t.use[pod] = float32(use)
		t.cpu[t.nodeOf[pod]] += use
	}

	for i, n := range t.w.Nodes {
		cpu[i] = t.cpu[i] / float64(n.CPU)
		memory[i] = float64(t.memory[i]) / float64(n.Memory)
	}
}

// Demand is what the pods of a node use of CPU at time now without the noise of the moment, those that have not started yet as
// if they had: what the best informed scheduler could know. It is a share of the node's CPU.
func (t *Truth) Demand(now time.Duration, share []float64) {
	clear(share)
	for i := range t.cycle {
		t.cycle[i] = t.w.Workloads[i].atTime(t.w.start + now)
	}

	for _, pod := range t.running {
		p := &t.w.Pods[pod]
		share[t.nodeOf[pod]] += float64(p.CPU) * p.factor * t.cycle[p.Workload]
	}

	for i, n := range t.w.Nodes {
		share[i] /= float64(n.CPU)
	}
}

// atTime is the use per request at a time of day.
func (w *Workload) atTime(timeOfDay time.Duration) float64 {
	if w.amplitude == 0 {
		return w.PerRequest
	}

	return w.PerRequest * (1 + w.amplitude*math.Cos(2*math.Pi*float64(timeOfDay-w.peak)/float64(day)))
}

// InUse is the number of nodes that run a pod.
func (t *Truth) InUse() int {
	n := 0
	for _, cpu := range t.requestedCPU {
		if cpu > 0 {
			n++
		}
	}

	return n
}
