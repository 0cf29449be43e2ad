// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simcluster

import (
	"math"
	"time"

	"crane.io/crane/pkg/series"
)

// Node is a machine.
type Node struct {
	Name   string
	CPU    series.MilliCPU
	Memory series.Bytes
}

// Workload is a group of similar pods.
type Workload struct {
	CPU    series.MilliCPU
	Memory series.Bytes
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
	CPU      series.MilliCPU
	Memory   series.Bytes
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
func (w *World) MeanUse(pod int, t time.Duration) series.MilliCPU {
	p := &w.Pods[pod]
	return series.MilliCPU(float64(p.CPU) * p.factor * w.Workloads[p.Workload].atTime(w.start+t))
}

// MemoryUse is what a pod uses of memory once it runs.
func (w *World) MemoryUse(pod int) series.Bytes {
	p := &w.Pods[pod]
	return series.Bytes(float64(p.Memory) * w.Workloads[p.Workload].MemoryPerRequest)
}

// CPU is the sum of all nodes' CPU.
func (w *World) CPU() series.MilliCPU {
	var sum series.MilliCPU
	for _, n := range w.Nodes {
		sum += n.CPU
	}
	return sum
}

// smooth is value noise: independent values of variance 1 at whole x, a smooth way between them.
func smooth(seed uint64, x float64) float64 {
	whole := math.Floor(x)
	f := x - whole
	a, b := lattice(seed, uint64(int64(whole))), lattice(seed, uint64(int64(whole)+1))
	s := f * f * (3 - 2*f)
	return a + (b-a)*s
}

// lattice is a value of variance 1, uniform, that depends on nothing but its arguments.
func lattice(seed, i uint64) float64 {
	const width = 2 * 1.7320508075688772 // 2 √3: the width of a uniform distribution of variance 1
	return (float64(mix(seed^mix(i))>>11)/(1<<53) - 0.5) * width
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// Hash is a number that depends on its arguments alone and looks random.
func Hash(seed, a, b uint64) uint64 { return mix(seed ^ mix(a^mix(b))) }
