// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Pod is a pod of a hot node.
type Pod struct {
	Namespace, Name, UID string
	// Use is its current usage; zero if unknown, and then it is not moved.
	Use nodeload.Amount
	// Priority and DeletionCost are those of Kubernetes: the lowest is moved first.
	Priority     int32
	DeletionCost int32
	// Blocked is why it must not be moved; empty if it may.
	Blocked string
	// Budgets are the indexes of its PodDisruptionBudgets.
	Budgets []int
	// Workload identifies its workload, for the limit per workload.
	Workload string
}

// Node is a node in a plan.
type Node struct {
	Name string
	Load *nodeload.Node
	// Hot lists where it is hot; nil if it is not, or not for long enough.
	Hot []Heat
	// Pods are the pods of a hot node; optional for others.
	Pods []Pod
	// Cooling means that pods have left it recently, so that its readings do not reflect it yet.
	Cooling bool
}

// Limits bound one run.
type Limits struct {
	// Total, PerNode and PerWorkload are the maximum moves of the run, of one node and of one workload.
	Total, PerNode, PerWorkload int
}

// Input is the input of a plan.
type Input struct {
	Now    time.Time
	Fleet  *nodeload.Fleet
	Nodes  []Node
	Limits Limits
	// Allowed is the number of disruptions that each budget allows; it is not changed.
	Allowed []int32
	// Fits returns why a pod of a node cannot run on another by requests, taints, selectors or affinity; empty if it
	// can. The plan passes moved pods to Placed, so that Fits counts them.
	Fits   func(pod *Pod, to int) string
	Placed func(pod *Pod, to int)
}

// Move is a pod that leaves a node. The scheduler decides where it goes: To is a node with free capacity for it.
type Move struct {
	Pod      Pod
	From, To int
	Heat     Heat
	// Before and After are the load of the hot node by the resource of Heat, and ToLoad that of the other with the pod.
	Before, After, ToLoad units.Ratio
}

// Refusal is a pod, or a hot node as a whole, that is not moved.
type Refusal struct {
	Node int
	// Pod is namespace/name; empty if the refusal concerns the node.
	Pod    string
	Reason string
}

// Plan is the result of a run.
type Plan struct {
	Moves    []Move
	Refusals []Refusal
}

// CoolingDown is the reason of a refusal of a node that pods have left recently.
const CoolingDown = "it is cooling down after an earlier move"

// Decide plans a run. The hottest nodes come first; each loses pods until it would be at its mark schedule, or its
// limits are reached.
func Decide(in Input) Plan {
	d := decision{Input: in, allowed: slices.Clone(in.Allowed), moved: map[string]int{}}
	for i := range in.Nodes {
		d.loads = append(d.loads, in.Nodes[i].Load)
	}

	for _, i := range hottest(in.Nodes) {
		if in.Fleet.Abstains() {
			d.refusef(i, "", "too few nodes report their load")
			continue
		}

		if in.Nodes[i].Cooling {
			d.refusef(i, "", CoolingDown)
			continue
		}

		d.cool(i)
	}

	return d.plan
}

// decision is a plan in progress.
type decision struct {
	Input
	plan    Plan
	loads   []*nodeload.Node
	allowed []int32
	moved   map[string]int // by workload
}

// hottest returns the indexes of hot nodes, the one that is farthest above its mark first.
func hottest(nodes []Node) []int {
	var out []int
	for i := range nodes {
		if len(nodes[i].Hot) > 0 {
			out = append(out, i)
		}
	}

	slices.SortStableFunc(out, func(a, b int) int {
		x := nodes[a].Hot[0]
		y := nodes[b].Hot[0]
		return cmp.Or(cmp.Compare(y.Load-y.Evict, x.Load-x.Evict), cmp.Compare(nodes[a].Name, nodes[b].Name))
	})

	return out
}

// refusef records a refusal.
func (d *decision) refusef(node int, pod, format string, args ...any) {
	d.plan.Refusals = append(d.plan.Refusals, Refusal{Node: node, Pod: pod, Reason: fmt.Sprintf(format, args...)})
}

// cool moves pods off one node.
func (d *decision) cool(from int) {
	heat := d.Nodes[from].Hot[0]
	target := d.Fleet.Rules.Policy.Marks[heat.Resource].Schedule
	load := heat.Load
	for moves := 0; load > target; moves++ {
		if moves >= d.Limits.PerNode {
			return // the next runs continue, with readings that reflect these moves
		}

		if len(d.plan.Moves) >= d.Limits.Total {
			d.refusef(from, "", "the limit of %d moves in a round is reached", d.Limits.Total)
			return
		}

		move, ok := d.next(from, heat, load, target)
		if !ok {
			if moves == 0 {
				d.refusef(from, "", "no pod can be moved")
			}

			return
		}

		load = move.After
		d.take(move)
	}
}

// next returns the cheapest pod that can be moved: of the lowest priority, then of the lowest deletion cost; of
// equals the smallest that alone brings the node to its target, else the largest, so that few pods are moved.
func (d *decision) next(from int, heat Heat, load, target units.Ratio) (Move, bool) {
	node := &d.Nodes[from]
	order := make([]*Pod, 0, len(node.Pods))
	share := func(p *Pod) units.Ratio { return d.share(from, heat.Resource, p.Use) }
	// The reasons of the largest pods come first: they make the node hot.
	for _, i := range largest(node.Pods, share) {
		p := &node.Pods[i]
		if why := d.blocked(p, share(p)); why != "" {
			if why != alreadyMoved && len(d.plan.Moves) == 0 {
				d.refusef(from, p.Namespace+"/"+p.Name, "%s", why)
			}
			continue
		}

		order = append(order, p)
	}

	relief := load - target
	slices.SortStableFunc(order, func(a, b *Pod) int {
		x := share(a)
		y := share(b)
		enough := cmp.Compare(boolToInt(y >= relief), boolToInt(x >= relief))

		size := cmp.Compare(y, x)
		if x >= relief && y >= relief {
			size = -size
		}

		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.DeletionCost, b.DeletionCost), enough, size, cmp.Compare(a.UID, b.UID))
	})

	for _, p := range order {
		to, toLoad, why := d.destination(from, heat.Resource, p)
		if why != "" {
			d.refusef(from, p.Namespace+"/"+p.Name, "%s", why)
			continue
		}

		return Move{
			Pod:    *p,
			From:   from,
			To:     to,
			Heat:   heat,
			Before: load,
			After:  load - share(p),
			ToLoad: toLoad,
		}, true
	}

	return Move{}, false
}

// largest returns the indexes of pods by descending usage.
func largest(pods []Pod, share func(*Pod) units.Ratio) []int {
	order := make([]int, len(pods))
	for i := range order {
		order[i] = i
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(share(&pods[b]), share(&pods[a])) })
	return order
}

func boolToInt(b bool) int {
	if b {
		return 1
	}

	return 0
}

// minRelief is the smallest usage of a pod, as a share of the node, that is worth a move: going from 99 % to 98 %
// disturbs a pod without benefit.
const minRelief units.Ratio = 0.02

// alreadyMoved is the reason for a pod that the plan moves already.
const alreadyMoved = "it is moved already"

func (d *decision) blocked(p *Pod, share units.Ratio) string {
	if slices.ContainsFunc(d.plan.Moves, func(m Move) bool { return m.Pod.UID == p.UID }) {
		return alreadyMoved
	}

	switch {
	case p.Blocked != "":
		return p.Blocked
	case !(share > 0):
		return "what it uses is not known"
	case share < minRelief:
		return fmt.Sprintf("it uses %.1f %% of the node: too little to be worth a move", 100*share)
	case d.moved[p.Workload] >= d.Limits.PerWorkload:
		return fmt.Sprintf("%s of its workload moved already", units.FormatCount(d.moved[p.Workload], "pod"))
	}

	for _, b := range p.Budgets {
		if d.allowed[b] < 1 {
			return "its disruption budget allows none"
		}
	}

	return ""
}

// destination returns the node with the least resulting load.
func (d *decision) destination(from int, resource units.Resource, p *Pod) (best int, load units.Ratio, why string) {
	best = -1
	// Reasons are counted, so that the message names the most frequent ones.
	reasons := map[string]int{}
	for i := range d.Nodes {
		if i == from {
			continue
		}

		withPod, reason := d.loadWithPod(i, resource, p.Use)
		if reason == "" {
			reason = d.Fits(p, i)
		}

		if reason != "" {
			reasons[reason]++
			continue
		}

		if best < 0 || withPod < load {
			best = i
			load = withPod
		}
	}

	if best >= 0 {
		return best, load, ""
	}

	return -1, 0, "no other node: " + summary(reasons)
}

// loadWithPod returns the load of a node with the pod, or why it must not get it.
func (d *decision) loadWithPod(i int, resource units.Resource, use nodeload.Amount) (units.Ratio, string) {
	n := d.loads[i]
	now := d.Now.UnixNano()

	if len(d.Nodes[i].Hot) > 0 {
		return 0, "hot itself"
	}

	if limit, _ := d.Fleet.Closed(n, use, now); limit != nodeload.Open {
		return 0, "closed by " + d.Fleet.Rules.Policy.Metrics[d.Fleet.Rules.Policy.Limits[limit].Metric].Name
	}

	// The node must stay below the mark of every resource, whichever made the other node hot.
	var load units.Ratio
	for _, r := range []units.Resource{units.CPU, units.Memory} {
		marks, marked := d.Fleet.Rules.Policy.Marks[r]
		gauge, measured := d.Fleet.Rules.Policy.Gauge(r)
		if !marked || !measured {
			continue
		}

		l := &n.Loads[gauge]
		if l.StateAt(now) != nodeload.Fresh {
			return 0, "its load is not known"
		}

		withPod := l.Value + max(l.OnWay, 0) + n.Incoming(gauge, use)
		if withPod > marks.Schedule {
			return 0, "would become hot"
		}

		if r == resource {
			load = withPod
		}
	}

	return load, ""
}

// share returns a pod's usage of a resource as a share of a node.
func (d *decision) share(node int, resource units.Resource, use nodeload.Amount) units.Ratio {
	gauge, ok := d.Fleet.Rules.Policy.Gauge(resource)
	if !ok {
		return 0
	}

	return d.loads[node].Incoming(gauge, use)
}

// take adds a move to the plan and to the state of further moves.
func (d *decision) take(m Move) {
	d.plan.Moves = append(d.plan.Moves, m)
	d.loads[m.To] = d.loads[m.To].WithPod(m.Pod.Use)
	d.moved[m.Pod.Workload]++
	for _, b := range m.Pod.Budgets {
		d.allowed[b]--
	}

	if d.Placed != nil {
		d.Placed(&m.Pod, m.To)
	}
}

// summary joins reasons with their number of nodes, the most frequent first.
func summary(reasons map[string]int) string {
	type count struct {
		reason string
		n      int
	}

	var all []count
	for reason, n := range reasons {
		all = append(all, count{reason, n})
	}

	slices.SortFunc(all, func(a, b count) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.reason, b.reason)) })
	if len(all) == 0 {
		return "there is none"
	}

	parts := make([]string, len(all))
	for i, c := range all {
		parts[i] = fmt.Sprintf("%d %s", c.n, c.reason)
	}

	return strings.Join(parts, ", ")
}
