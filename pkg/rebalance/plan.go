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
	"crane.io/crane/pkg/series"
)

// Pod is a pod of a hot node.
type Pod struct {
	Namespace, Name, UID string
	// Use is what it uses now; zero where that is not known, and then it is not moved.
	Use nodeload.Amount
	// Priority and DeletionCost are Kubernetes's: the lower goes first.
	Priority     int32
	DeletionCost int32
	// Blocked says why it must not be moved; empty where it may.
	Blocked string
	// Budgets are the indexes of its disruption budgets.
	Budgets []int
	// Workload names what replaces it, for budgets of our own.
	Workload string
}

// Node is a node as the plan sees it.
type Node struct {
	Name string
	Load *nodeload.Node
	// Hot says where it is hot; nil where it is not, or not long enough.
	Hot []Heat
	// Pods are those of a hot node; they may be left out of the others.
	Pods []Pod
	// Cooling tells that pods have left it lately, so that its readings do not show it yet.
	Cooling bool
}

// Limits bound one round.
type Limits struct {
	// Moves of a round in all, of one node, and of one workload.
	Total, PerNode, PerWorkload int
}

// Input is what a plan is made from.
type Input struct {
	Now    time.Time
	Fleet  *nodeload.Fleet
	Nodes  []Node
	Limits Limits
	// Allowed is how many disruptions each budget allows; it is not changed.
	Allowed []int32
	// Fits says why a pod of a node cannot run on another by requests, taints, selectors or affinity; empty where it can.
	// Pods that the plan moves are told to Placed, so that it counts them.
	Fits   func(pod *Pod, to int) string
	Placed func(pod *Pod, to int)
}

// Move is a pod that leaves a node. Where it goes is the scheduler's to decide: To is a node that was found to have room.
type Move struct {
	Pod      Pod
	From, To int
	Heat     Heat
	// Before and After are the load of the hot node by the resource of Heat, and ToLoad that of the other with the pod.
	Before, After, ToLoad series.Ratio
}

// Refusal is a pod, or a hot node as a whole, that is not acted on.
type Refusal struct {
	Node int
	// Pod is the name, with its namespace; empty where it is about the node.
	Pod    string
	Reason string
}

// Plan is what a round does.
type Plan struct {
	Moves    []Move
	Refusals []Refusal
}

// CoolingDown is the reason of a refusal of a node that pods have left lately.
const CoolingDown = "it is cooling down after an earlier move"

// Decide plans a round. Hottest nodes come first; each gives up pods until it would be at its mark schedule, or its limits
// are reached.
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

// decision is a plan in the making.
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
		x, y := nodes[a].Hot[0], nodes[b].Hot[0]
		return cmp.Or(cmp.Compare(y.Load-y.Evict, x.Load-x.Evict), cmp.Compare(nodes[a].Name, nodes[b].Name))
	})
	return out
}

// refusef enters a reason.
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
			return // The next rounds go on, with readings that know of these moves.
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

// next finds the cheapest pod that can be moved: of the lowest priority, then of the lowest deletion cost; of equals the
// smallest that brings the node to its target alone, else the largest, so that few pods are moved.
func (d *decision) next(from int, heat Heat, load, target series.Ratio) (Move, bool) {
	node := &d.Nodes[from]
	order := make([]*Pod, 0, len(node.Pods))
	share := func(p *Pod) series.Ratio { return d.share(from, heat.Resource, p.Use) }
	// The reasons of those that use most come first: they are what makes the node hot.
	for _, i := range largest(node.Pods, share) {
		p := &node.Pods[i]
		if why := d.blocked(p, share(p)); why != "" {
			if why != taken && len(d.plan.Moves) == 0 {
				d.refusef(from, p.Namespace+"/"+p.Name, "%s", why)
			}
			continue
		}
		order = append(order, p)
	}
	relief := load - target
	slices.SortStableFunc(order, func(a, b *Pod) int {
		x, y := share(a), share(b)
		enough := cmp.Compare(b2i(y >= relief), b2i(x >= relief))
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
		return Move{Pod: *p, From: from, To: to, Heat: heat, Before: load, After: load - share(p), ToLoad: toLoad}, true
	}
	return Move{}, false
}

// largest returns the indexes of pods, the one that uses most first.
func largest(pods []Pod, share func(*Pod) series.Ratio) []int {
	order := make([]int, len(pods))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(share(&pods[b]), share(&pods[a])) })
	return order
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// minRelief is the share of a node that a pod has to use to be worth moving: what brings a node from 99 % to 98 % disturbs
// a pod and helps nobody.
const minRelief series.Ratio = 0.02

// taken is the reason for a pod that this plan moves already.
const taken = "it is moved already"

func (d *decision) blocked(p *Pod, share series.Ratio) string {
	if slices.ContainsFunc(d.plan.Moves, func(m Move) bool { return m.Pod.UID == p.UID }) {
		return taken
	}
	switch {
	case p.Blocked != "":
		return p.Blocked
	case !(share > 0):
		return "what it uses is not known"
	case share < minRelief:
		return fmt.Sprintf("it uses %.1f %% of the node: too little to be worth a move", 100*share)
	case d.moved[p.Workload] >= d.Limits.PerWorkload:
		return fmt.Sprintf("%d pods of its workload are moved already", d.moved[p.Workload])
	}
	for _, b := range p.Budgets {
		if d.allowed[b] < 1 {
			return "its disruption budget allows none"
		}
	}
	return ""
}

// destination is the node that would be loaded least with the pod.
func (d *decision) destination(from int, resource nodeload.Resource, p *Pod) (best int, load series.Ratio, why string) {
	best = -1
	reasons := map[string]int{}
	for i := range d.Nodes {
		if i == from {
			continue
		}
		with, no := d.with(i, resource, p.Use)
		if no == "" {
			no = d.Fits(p, i)
		}
		if no != "" {
			reasons[no]++
			continue
		}
		if best < 0 || with < load {
			best, load = i, with
		}
	}
	if best >= 0 {
		return best, load, ""
	}
	return -1, 0, "no other node: " + summary(reasons)
}

// with is the load of a node with the pod, or why it must not take it.
func (d *decision) with(i int, resource nodeload.Resource, use nodeload.Amount) (series.Ratio, string) {
	n, at := d.loads[i], d.Now.UnixNano()
	if len(d.Nodes[i].Hot) > 0 {
		return 0, "hot itself"
	}
	if limit, _ := d.Fleet.Closed(n, use, at); limit != nodeload.Open {
		return 0, "closed by " + d.Fleet.Rules.Policy.Metrics[d.Fleet.Rules.Policy.Limits[limit].Metric].Name
	}
	var of series.Ratio
	for _, r := range []nodeload.Resource{nodeload.CPU, nodeload.Memory} {
		marks, marked := d.Fleet.Rules.Policy.Marks[r]
		gauge, measured := d.Fleet.Rules.Policy.Gauge(r)
		if !marked || !measured {
			continue
		}
		l := &n.Loads[gauge]
		if l.StateAt(at) != nodeload.Fresh {
			return 0, "its load is not known"
		}
		with := l.Value + max(l.OnWay, 0) + n.Incoming(gauge, use)
		if with > marks.Schedule {
			return 0, "would become hot"
		}
		if r == resource {
			of = with
		}
	}
	return of, ""
}

// share is what a pod uses of a resource of a node.
func (d *decision) share(node int, of nodeload.Resource, use nodeload.Amount) series.Ratio {
	gauge, ok := d.Fleet.Rules.Policy.Gauge(of)
	if !ok {
		return 0
	}
	return d.loads[node].Incoming(gauge, use)
}

// take enters a move into the plan and the state that further moves see.
func (d *decision) take(m Move) {
	d.plan.Moves = append(d.plan.Moves, m)
	d.loads[m.To] = d.loads[m.To].Joined(m.Pod.Use)
	d.moved[m.Pod.Workload]++
	for _, b := range m.Pod.Budgets {
		d.allowed[b]--
	}
	if d.Placed != nil {
		d.Placed(&m.Pod, m.To)
	}
}

// summary writes reasons with the number of nodes, the most frequent first.
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
	text := strings.Join(parts, ", ")
	return text
}
