// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

const (
	gocraneName   = "GocraneDynamic"
	gocraneWeight = 3
	// gocraneHeap is how many bindings its controller remembers.
	gocraneHeap = 1024
)

// gocrane is the load-aware plugin and the annotating controller of gocrane/crane-scheduler with the policy that it ships, as
// reference and issues describe them: each metric of each node is written every period (3 min, 15 min, 3 h) and counts five
// minutes longer; Filter passes what it cannot read and Score counts it as fully used; the hot value comes from a heap of 1,024
// binding events and is written together with a metric only. Not modeled: its write rate of five a second, from which it falls
// behind at about 185 nodes, and its time zones. Both would make it worse.
type gocrane struct {
	env    Env
	spec   nodeload.Spec
	active map[string]time.Duration
	binds  bindHeap
	cache  map[*corev1.Node]*gocraneNode
	byNode []*corev1.Node
	format nodeload.Format
}

// gocraneNode holds the parsed annotations of a node.
type gocraneNode struct {
	loads map[string]nodeload.Sample
	hot   nodeload.Hot
}

var (
	_ fwk.FilterPlugin = &gocrane{}
	_ fwk.ScorePlugin  = &gocrane{}
)

// Gocrane is the default profile with gocrane's plugin at its weight of 3.
func Gocrane(env Env) Policy {
	g := &gocrane{
		env:    env,
		spec:   nodeload.GocraneSpec(),
		active: map[string]time.Duration{},
		cache:  map[*corev1.Node]*gocraneNode{},
		byNode: make([]*corev1.Node, len(env.World().Nodes)),
	}

	for _, m := range g.spec.Metrics {
		g.active[m.Name] = m.Active()
	}

	return Policy{
		Plugin: gocraneName,
		New:    always(g),
		Weight: gocraneWeight,
		Start:  g.start,
		Bound:  g.bound,
	}
}

func (g *gocrane) Name() string { return gocraneName }

// start makes each metric tick, all nodes at once: the controller's tickers have no jitter.
func (g *gocrane) start() {
	for _, m := range g.spec.Metrics {
		var tick func()
		tick = func() {
			g.env.At(g.env.Now()+m.Period, tick)
			g.write(m.Name)
		}
		g.env.At(g.env.Now(), tick)
	}
}

func (g *gocrane) write(metric string) {
	if g.env.Meter().Down(g.env.Now()) {
		return
	}

	now := g.env.WriterClock()
	counts := g.hotValues(now)
	for i := range g.env.World().Nodes {
		v, ok := g.env.Meter().Read(metric, i)
		if !ok {
			continue
		}

		annotations := map[string]string{
			metric:               g.format.Load(nodeload.Sample{Value: units.Ratio(v), Time: now}),
			nodeload.HotValueKey: g.format.Hot(nodeload.Hot{Value: counts[i], Time: now}),
		}
		g.env.At(g.env.Now()+g.env.Spec().Metrics.Delay.Duration, func() { g.env.Annotate(i, annotations) })
	}
}

// hotValues are by node the sum over windows of the whole part of bindings over count.
func (g *gocrane) hotValues(now time.Time) []int64 {
	hot := make([]int64, len(g.env.World().Nodes))
	inWindow := make([]int64, len(hot))
	for _, h := range g.spec.Hot {
		clear(inWindow)
		for _, b := range g.binds {
			if b.at.After(now.Add(-h.Range)) {
				inWindow[b.node]++
			}
		}

		for i, n := range inWindow {
			hot[i] += n / h.Count
		}
	}

	return hot
}

func (g *gocrane) bound(_, node int) {
	if len(g.binds) >= gocraneHeap {
		heap.Pop(&g.binds)
	}
	heap.Push(&g.binds, binding{at: g.env.WriterClock(), node: node})
}

// read parses the annotations of a node once per version of it.
func (g *gocrane) read(info fwk.NodeInfo) *gocraneNode {
	node := info.Node()
	if n, ok := g.cache[node]; ok {
		return n
	}

	i := g.env.Node(node.Name)
	delete(g.cache, g.byNode[i])

	n := &gocraneNode{loads: map[string]nodeload.Sample{}}
	for _, key := range slices.Sorted(maps.Keys(node.Annotations)) {
		if key == nodeload.HotValueKey {
			if hot, err := g.format.ParseHot(node.Annotations[key]); err == nil {
				n.hot = hot
			}
		} else if sample, err := g.format.ParseLoad(node.Annotations[key]); err == nil {
			n.loads[key] = sample
		}
	}

	g.cache[node] = n
	g.byNode[i] = node
	return n
}

// load is a load that counts. A stamp from the future counts for ever.
func (g *gocrane) load(n *gocraneNode, metric string) (float64, bool) {
	s, ok := n.loads[metric]
	if !ok || g.env.Clock().Sub(s.Time) > g.active[metric] {
		return 0, false
	}

	return float64(s.Value), true
}

// Filter implements fwk.FilterPlugin.
func (g *gocrane) Filter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	n := g.read(info)
	for _, p := range g.spec.Predicates {
		if u, ok := g.load(n, p.Name); ok && p.Max != 0 && u > float64(p.Max) {
			return fwk.NewStatus(fwk.Unschedulable, "load is too high")
		}
	}

	return nil
}

// Score implements fwk.ScorePlugin.
func (g *gocrane) Score(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	n := g.read(info)
	var score, weight float64
	for _, p := range g.spec.Priorities {
		weight += p.Weight
		if u, ok := g.load(n, p.Name); ok {
			score += (1 - u) * p.Weight * float64(fwk.MaxScore)
		}
	}

	var hot int64
	if !n.hot.Time.IsZero() && g.env.Clock().Sub(n.hot.Time) <= nodeload.HotActive {
		hot = n.hot.Value
	}

	return max(fwk.MinScore, min(fwk.MaxScore, int64(score/weight)-10*hot)), nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (g *gocrane) ScoreExtensions() fwk.ScoreExtensions { return nil }

// binding is an event of a pod that was bound.
type binding struct {
	at   time.Time
	node int
}

// bindHeap has the oldest binding at its top.
type bindHeap []binding

func (h bindHeap) Len() int           { return len(h) }
func (h bindHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h bindHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *bindHeap) Push(x any) {
	if b, ok := x.(binding); ok {
		*h = append(*h, b)
	}
}

// Pop implements heap.Interface.
func (h *bindHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
