// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer has the policies that Crane's plugin is compared with, as plugins of the scheduler framework: the
// formulas of gocrane's and Koordinator's schedulers, written from their description, random placement, the better of
// two, and an oracle with the true usage of nodes. Each includes its part of the metrics pipeline. It does not link
// k8s.io/kubernetes.
package peer

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

// Env is the simulated cluster for a policy. Its methods are called from one goroutine at a time.
type Env interface {
	Spec() *simscenario.Scenario
	World() *simcluster.World
	Truth() *simcluster.Truth
	Meter() *simcluster.Meter
	// Now is the time since the start of the simulation; Clock is the scheduler's clock and WriterClock the clock of
	// the writer of metrics.
	Now() time.Duration
	Clock() time.Time
	WriterClock() time.Time
	// At runs do at a time that is not before now.
	At(t time.Duration, do func())
	// Node and Pod are the indices in World of objects of the API.
	Node(name string) int
	Pod(pod *corev1.Pod) int
	// Annotate changes annotations of a node; the scheduler sees it at once.
	Annotate(node int, annotations map[string]string)
	// Random is a number that depends on the seed of the run and on its arguments alone, from 0 to 1.
	Random(a, b int) float64
}

// Factory creates a plugin, in the form of the framework's registry.
type Factory = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error)

// Policy is one way to schedule: the default profile with another plugin, or without its own scores.
type Policy struct {
	// Plugin is the name of the plugin that is added; empty for the default profile as it is.
	Plugin string
	New    Factory
	// Args of the plugin; nil for none.
	Args runtime.Object
	// Weight of its scores.
	Weight int32
	// Alone takes the scores of all other plugins away; their filters stay.
	Alone bool
	// Start is called once, before the first event; nil if there is nothing to start.
	Start func()
	// Bound is called for each bound pod, like its event; nil for none.
	Bound func(pod, node int)
	// Removed is called for each pod that ended.
	Removed func(pod, node int)
	// Scraped is called after each sample of the whole cluster.
	Scraped func()
}

// index finds the node of a NodeInfo in the world.
func index(env Env, info fwk.NodeInfo) int { return env.Node(info.Node().Name) }

// share of a node's CPU that a pod uses or requests.
func share(milli float64, w *simcluster.World, node int) float64 {
	return milli / float64(w.Nodes[node].CPU)
}

// reportEvery is the time between two reports of a node.
const reportEvery = time.Minute

// reports are the latest CPU loads of nodes that have arrived through a pipeline with the scenario's delay.
type reports struct {
	env   Env
	loads []float64
}

func newReports(env Env, nodes int) *reports {
	return &reports{env: env, loads: make([]float64, nodes)}
}

func (r *reports) cpu(node int) float64 { return r.loads[node] }

func (r *reports) start() { r.env.At(r.env.Now(), r.collect) }

// collect reads all nodes; the values arrive after the delay.
func (r *reports) collect() {
	r.env.At(r.env.Now()+reportEvery, r.collect)
	if r.env.Meter().Down(r.env.Now()) {
		return
	}

	values := make([]float64, len(r.loads))
	for i := range values {
		values[i] = r.loads[i]
		if v, ok := r.env.Meter().Read("cpu_usage_avg_5m", i); ok {
			values[i] = v
		}
	}

	r.env.At(r.env.Now()+r.env.Spec().Metrics.Delay.Duration, func() { copy(r.loads, values) })
}
