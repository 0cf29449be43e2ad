// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"
	"time"

	"crane.io/crane/internal/scheduler/simulate/peer"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/rebalance"
	"crane.io/crane/pkg/units"
)

// Limits of the rebalancer in simulations: higher than the controller's conservative defaults. The report has the
// number of moves.
const (
	rebalanceEvery  = time.Minute
	rebalanceRounds = 2
	rebalanceNode   = 1
	rebalanceShare  = 0.02 // of the nodes, in one round
	rebalanceCool   = 6 * time.Minute
	workloadMoves   = 5
)

// rebalancer moves pods off nodes that stay hot, by the decisions of pkg/rebalance. A moved pod ends and is created
// again, as by its owner, for the scheduler to place.
type rebalancer struct {
	sim      *simulation
	rules    *nodeload.Rules
	arrivals []nodeload.Arrivals
	cooling  []time.Duration
	streaks  rebalance.Streaks
}

func newRebalancer(sim *simulation, policy *nodeload.Policy) (*rebalancer, error) {
	rules, err := nodeload.NewRules(policy, nodeload.Strategy{})
	if err != nil {
		return nil, err
	}

	n := len(sim.world.Nodes)
	r := &rebalancer{
		sim:      sim,
		rules:    rules,
		arrivals: make([]nodeload.Arrivals, n),
		cooling:  make([]time.Duration, n),
	}

	for i := range r.cooling {
		r.cooling[i] = -rebalanceCool
	}

	return r, nil
}

// attach passes the events of a policy to the rebalancer as well.
func (r *rebalancer) attach(p peer.Policy) peer.Policy {
	start := p.Start
	p.Start = func() {
		start()
		r.sim.At(rebalanceEvery, r.run)
	}

	p.Bound = func(pod, node int) {
		r.arrivals[node].Add(r.name(pod), r.usual(pod), r.sim.Clock().Add(r.sim.spec.Workloads.Startup.Duration))
	}
	p.Removed = func(pod, node int) {
		started := r.sim.epoch.Add(r.sim.truth.Since(pod)).Add(r.sim.spec.Workloads.Startup.Duration)
		r.arrivals[node].End(r.name(pod), nodeload.Credit{Measured: r.usual(pod)}, started, r.sim.Clock())
	}

	return p
}

func (r *rebalancer) name(pod int) string {
	return strconv.Itoa(pod) + "." + strconv.Itoa(r.sim.generation[pod])
}

// usual returns the usage of a pod of its workload.
func (r *rebalancer) usual(pod int) nodeload.Amount {
	p := &r.sim.world.Pods[pod]
	w := &r.sim.world.Workloads[p.Workload]
	return nodeload.Amount{CPU: units.MilliCPU(float64(p.CPU) * w.PerRequest), Memory: r.sim.world.MemoryUse(pod)}
}

// run evaluates all nodes once, and moves pods off those that stay hot.
func (r *rebalancer) run() {
	r.sim.At(r.sim.now+rebalanceEvery, r.run)
	now := r.sim.Clock()

	count := r.rules.NewCount(now)
	nodes := make([]rebalance.Node, len(r.sim.nodes))
	hot := false
	for i, object := range r.sim.nodes {
		samples, _ := r.rules.Read(nodeload.Format{}, object.Annotations)
		n := &r.sim.world.Nodes[i]
		load := r.rules.NodeAt(nodeload.Report{Capacity: nodeload.Amount{CPU: n.CPU, Memory: n.Memory}, Samples: samples}, &r.arrivals[i], now)
		count.Add(load, nodeload.Amount{})

		nodes[i] = rebalance.Node{Name: n.Name, Load: load, Cooling: r.sim.now-r.cooling[i] < rebalanceCool}
		for _, heat := range r.streaks.Look(n.Name, r.rules.Policy, samples, now) {
			if heat.Rounds >= rebalanceRounds {
				nodes[i].Hot = append(nodes[i].Hot, heat)
			}
		}

		// The candidates of cool nodes are never used, and reading them is most of the cost.
		if len(nodes[i].Hot) > 0 {
			hot = true
			nodes[i].Pods = r.candidates(i)
		}
	}

	if !hot {
		return
	}

	r.act(rebalance.Decide(rebalance.Input{
		Now:    now,
		Fleet:  count.Fleet(nodeload.DefaultMinFresh),
		Nodes:  nodes,
		Fits:   r.fits,
		Limits: rebalance.Limits{Total: max(1, int(rebalanceShare*float64(len(nodes)))), PerNode: rebalanceNode, PerWorkload: workloadMoves},
	}))
}

// candidates returns the pods of a node with their usage in the last sample, as metrics-server reports it.
func (r *rebalancer) candidates(node int) []rebalance.Pod {
	var pods []rebalance.Pod
	for _, pod := range r.sim.truth.Running() {
		p := int(pod)
		if r.sim.truth.NodeOf(p) != node {
			continue
		}

		pods = append(pods, rebalance.Pod{
			Namespace: namespace,
			Name:      strconv.Itoa(p),
			UID:       r.name(p),
			Workload:  strconv.Itoa(r.sim.world.Pods[p].Workload),
			Use:       nodeload.Amount{CPU: units.MilliCPU(r.sim.truth.PodUse(p)), Memory: r.sim.world.MemoryUse(p)},
		})
	}

	return pods
}

func (r *rebalancer) fits(pod *rebalance.Pod, to int) string {
	p, err := strconv.Atoi(pod.Name)
	if err != nil || !r.sim.truth.Fits(p, to) {
		return "not enough room"
	}

	return ""
}

// act executes a plan.
func (r *rebalancer) act(plan rebalance.Plan) {
	for _, move := range plan.Moves {
		pod, err := strconv.Atoi(move.Pod.Name)
		if err != nil || r.sim.err != nil {
			return
		}

		r.cooling[move.From] = r.sim.now
		r.sim.moves++
		r.sim.remove(pod)
		r.sim.recreate(pod)
	}
}
