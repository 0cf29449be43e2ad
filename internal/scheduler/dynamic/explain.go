// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"cmp"
	"slices"
	"strings"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Explain returns how the latest attempt to place the pod filtered and scored each node. ok is false if the pod is
// not among the recorded ones.
func (p *Plugin) Explain(namespace, name string) (nodeload.Explanation, bool) {
	recorded, ok := p.ring.find(namespace, name)
	if !ok {
		return nodeload.Explanation{}, false
	}

	return recorded.explain(p.profile), true
}

// Recent lists the pods of the recorded attempts as namespace/name, the latest first, each once.
func (p *Plugin) Recent() []string {
	p.ring.mu.Lock()
	defer p.ring.mu.Unlock()

	var pods []string
	for _, a := range slices.Backward(p.ring.attempts) {
		if pod := a.namespace + "/" + a.name; !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}

	return pods
}

// attemptCopy is a copy of an attempt, whose slot in the ring may be reused while the copy is read.
type attemptCopy struct {
	*attempt
	node   string
	undone bool
	words  []words
}

type words struct{ filter, score uint64 }

func (r *attemptRing) find(namespace, name string) (attemptCopy, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, a := range slices.Backward(r.attempts) {
		if a.namespace != namespace || a.name != name {
			continue
		}

		n := attemptCopy{
			attempt: a,
			node:    a.node,
			undone:  a.undone,
			words:   make([]words, len(a.answers)),
		}

		for i := range a.answers {
			n.words[i] = words{filter: a.answers[i].filter.Load(), score: a.answers[i].score.Load()}
		}

		return n, true
	}

	return attemptCopy{}, false
}

func (n attemptCopy) explain(profile string) nodeload.Explanation {
	snapshot := n.snapshot
	e := nodeload.Explanation{
		Pod:      n.namespace + "/" + n.name,
		Profile:  profile,
		Attempt:  n.number,
		Time:     n.startedAt.UTC(),
		Outcome:  n.outcome(),
		Node:     n.node,
		CPU:      n.use.CPU,
		Memory:   n.use.Memory,
		Basis:    n.basis.String(),
		Exempt:   n.exempt,
		Abstains: snapshot.Abstains(),
		Strategy: snapshot.Rules.Strategy.Name,
		Fresh:    snapshot.States[nodeload.Fresh],
		Stale:    snapshot.States[nodeload.Stale],
		Absent:   snapshot.States[nodeload.Absent],
	}

	for i, m := range snapshot.Rules.Policy.Metrics {
		if !snapshot.InForce(i) {
			e.LeftOut = append(e.LeftOut, m.Name)
		}
	}

	for slot, w := range n.words {
		// If no node can be closed, a node selected without a score was the only one left by other plugins.
		if w.filter|w.score == 0 && (!n.clear.Load() || snapshot.roster[slot] != n.node) {
			e.NotAsked++
			continue
		}

		e.Nodes = append(e.Nodes, n.answer(snapshot.roster[slot], w))
	}

	slices.SortStableFunc(e.Nodes, func(a, b nodeload.NodeExplanation) int {
		return cmp.Or(rank(a, n.node)-rank(b, n.node), cmp.Compare(a.Cost, b.Cost), strings.Compare(a.Name, b.Name))
	})

	return e
}

func (n attemptCopy) outcome() string {
	switch {
	case n.undone:
		return "placed on " + n.node + " and taken back"
	case n.node != "":
		return "placed on " + n.node
	}

	return "not placed"
}

// rank sorts the selected node first, then scored nodes, then closed ones.
func rank(n nodeload.NodeExplanation, chosen string) int {
	switch {
	case n.Name == chosen:
		return 0
	case n.Verdict == nodeload.Scored:
		return 1
	case n.Verdict == nodeload.Passed:
		return 2
	}

	return 3
}

func (n attemptCopy) answer(node string, w words) nodeload.NodeExplanation {
	e := nodeload.NodeExplanation{Name: node, Unknown: (w.filter|w.score)&wasUnknown != 0}
	switch {
	case w.filter&wasClosed != 0:
		limit := n.snapshot.Rules.Policy.Limits[w.filter>>48&limitBits]
		e.Verdict = nodeload.Closed
		e.Metric = n.snapshot.Rules.Policy.Metrics[limit.Metric].Name
		e.Limit = limit.Max
		e.Mark = limit.Mark
		e.Load = unfixed(w.filter >> 32)
		e.OnWay = unsigned(w.filter >> 16)
		e.Incoming = unfixed(w.filter)

	case w.score != 0:
		e.Verdict = nodeload.Scored
		e.Cost = unfixedCost(w.score)
		e.Load = unfixed(w.score >> 16)
		e.OnWay = unsigned(w.score)
		e.Incoming = units.Ratio(n.snapshot.Incoming(n.use))
		if scale := n.scale.Load(); scale != nil {
			// Costs are stored with seven decimals; the best must not score below 100 by rounding.
			score := scale.Score(e.Cost - 1/costUnits)
			e.Score = &score
		}

	default:
		e.Verdict = nodeload.Passed
	}

	return e
}
