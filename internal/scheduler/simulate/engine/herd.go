// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"crane.io/crane/internal/scheduler/simulate/peer"
	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

// frozen is the time of the burst: metrics do not change from then on.
const frozen = 11 * time.Minute

// Herd is the result of a burst of equal pods.
type Herd struct {
	Policy string `json:"policy"`
	Pods   int    `json:"pods"`
	// Waiting pods found no node.
	Waiting int `json:"waiting"`
	// OnIdle is how many of them went to the idle node, Most the maximum on any one node.
	OnIdle int `json:"onIdleNode"`
	Most   int `json:"mostOnOneNode"`
	// Above is how far the most loaded node ends above the mean, PodShare the load of one pod; shares of a node's
	// CPU.
	Above    float64 `json:"aboveMean"`
	PodShare float64 `json:"podShare"`
}

// RunHerd simulates a burst of equal pods on a cluster in which one node reports 10 % load and the others 50 %, with
// frozen metrics.
func RunHerd(ctx context.Context, nodes, size int, name string, policy func(peer.Env) peer.Policy) (Herd, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	defer cancel()

	// An outage that begins with the burst freezes the metrics.
	b := simcluster.NewBurst(nodes, size, frozen)
	spec := &simscenario.Scenario{Name: "herd", Metrics: simscenario.Metrics{
		Scrape:  metav1.Duration{Duration: 30 * time.Second},
		Outages: []simscenario.Outage{{From: metav1.Duration{Duration: frozen}, For: metav1.Duration{Duration: time.Hour}}},
	}}

	sim, err := newSimulation(ctx, spec, b.World, 1, policy)
	if err != nil {
		return Herd{}, err
	}
	defer sim.close()

	for pod, node := range b.On {
		object := sim.object(pod)
		object.Spec.NodeName = b.Nodes[node].Name
		if err := sim.cache.AddPod(sim.logger, object); err != nil {
			return Herd{}, fmt.Errorf("placing the running pods: %w", err)
		}

		sim.bind(pod, node, object)
	}

	sim.events.add(0, sim.scrape)
	if sim.policy.Start != nil {
		sim.policy.Start()
	}

	// The metrics of the running pods reach the scheduler before the burst.
	for next, ok := sim.events.next(frozen); ok; next, ok = sim.events.next(frozen) {
		sim.now = next.at
		next.do()
	}

	for pod := len(b.On); pod < len(b.Pods); pod++ {
		sim.arrive(ctx, pod)
	}

	if sim.err != nil {
		return Herd{}, fmt.Errorf("simulating the burst with %s: %w", name, sim.err)
	}

	return measureHerd(b, sim.truth, sim.now, name, len(sim.pending)), nil
}

// measureHerd measures the spread of the burst over the nodes at a time.
func measureHerd(b *simcluster.Burst, truth *simcluster.Truth, now time.Duration, name string, waiting int) Herd {
	h := Herd{
		Policy:   name,
		Pods:     len(b.Pods) - len(b.On),
		Waiting:  waiting,
		PodShare: b.PodShare(),
	}

	placed := make([]int, len(b.Nodes))
	for pod := len(b.On); pod < len(b.Pods); pod++ {
		if node := truth.NodeOf(pod); node >= 0 {
			placed[node]++
			h.Most = max(h.Most, placed[node])
		}
	}

	h.OnIdle = placed[0]
	load := make([]float64, len(b.Nodes))
	truth.Demand(now, load)

	mean := 0.0
	highest := 0.0
	for _, l := range load {
		mean += l / float64(len(load))
		highest = max(highest, l)
	}

	h.Above = highest - mean
	return h
}
