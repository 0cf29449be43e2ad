// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/pluginconfig"
	"crane.io/crane/pkg/nodeload"
)

// Name of the plugin.
const Name = pluginconfig.DynamicName

// stateKey is the key of a cycle in the CycleState.
const stateKey fwk.StateKey = "crane.io/" + Name

// Plugin is the scheduler plugin Dynamic.
type Plugin struct {
	cluster
	pods    podTracker
	ring    attemptRing
	metrics *profileMetrics
	events  *events
	profile string
	// peers are the plugins of all profiles, including this one: a reservation of one is pending load for all.
	peers func() []*Plugin
	// activate makes the scheduler retry pods, by namespace/name; nil if there is none.
	activate func(map[string]*corev1.Pod)
	// snapshot lists all nodes, for cycles without PreFilter.
	snapshot func() ([]fwk.NodeInfo, error)

	attempts atomic.Uint64
	// recent is the latest cycle, which is faster to load here than from the CycleState of each node.
	recent atomic.Pointer[recent]
}

// recent is a cycle and its CycleState.
type recent struct {
	state fwk.CycleState
	cycle *cycle
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ScoreExtensions   = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// Name implements fwk.Plugin.
func (*Plugin) Name() string { return Name }

// cycle is the state of one attempt to place one pod.
type cycle struct {
	*fleetSnapshot
	objects objects
	// now is in nanoseconds since 1970.
	now int64
	use nodeload.Amount
	// memo caches Score for pods with equal usage; nil for none.
	memo memo
	// number is the number of the attempt, from 1.
	number uint64
	// exempt means that load does not exclude nodes for the pod.
	exempt bool
	// wasRejected is set by the first closed node.
	wasRejected atomic.Bool
	// attempt records the answers.
	attempt *attempt
}

// Clone implements fwk.StateData. A cycle does not depend on the pods of a node, so AddPod and RemovePod change
// nothing.
func (c *cycle) Clone() fwk.StateData { return c }

// PreFilter evaluates the pod and, at most once per second, all nodes together. It skips Filter for pods that load
// must not block, if too few nodes report their load, and if even the fullest node is open, including changes since
// the last snapshot.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c := p.begin(state, pod, nodes)
	allOpen := !c.exempt && !c.Abstains() && !c.MayClose(c.peaks, c.use)
	c.attempt.clear.Store(allOpen)

	if c.exempt || c.Abstains() || allOpen {
		return nil, fwk.NewStatus(fwk.Skip)
	}

	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin; there are none, because only the reported load of a node
// matters and not its pods.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (p *Plugin) begin(state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *cycle {
	if p.reader.holds.size.Load() > 0 { // those of the peers are of the same nodes
		for _, peer := range p.peers() {
			peer.releaseHolds(pod)
		}
	}

	snapshot := p.summarize(nodes)
	use, basis := p.pods.estimate(pod, snapshot.Share)
	c := &cycle{
		fleetSnapshot: snapshot,
		objects:       *p.objects.Load(),
		now:           p.clock.Now().UnixNano(),
		use:           use,
		number:        p.attempts.Add(1),
		exempt:        isDaemon(pod) || isCritical(pod),
		memo:          p.memos.memoFor(snapshot, use),
	}

	c.attempt = p.ring.next(pod, c, basis, p.clock.Now())
	p.metrics.began(basis, snapshot.Abstains())
	state.Write(stateKey, c)
	p.recent.Store(&recent{state: state, cycle: c})

	return c
}

// cycle returns the cycle of the pod. In a profile without PreFilter it starts here.
func (p *Plugin) cycle(state fwk.CycleState, pod *corev1.Pod) (*cycle, error) {
	if last := p.recent.Load(); last != nil && last.state == state {
		return last.cycle, nil
	}

	if data, err := state.Read(stateKey); err == nil {
		return data.(*cycle), nil
	}

	nodes, err := p.snapshot()
	if err != nil {
		return nil, err
	}

	return p.begin(state, pod, nodes), nil
}

// Filter excludes a node that would exceed a limit.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, err := p.cycle(state, pod)
	if err != nil {
		return fwk.AsStatus(err)
	}

	object := info.Node()
	if object == nil || c.exempt {
		return nil
	}

	e := p.find(c, object)
	node := &p.viewOf(c.fleetSnapshot, e, object).Node
	limit, unknown := c.Closed(node, c.use, c.now)
	c.attempt.filtered(e, node, limit, unknown)

	if unknown {
		p.metrics.passedUnknown()
	}

	if limit == nodeload.Open {
		return nil
	}

	return p.reject(c, pod, e, limit)
}

func (p *Plugin) reject(c *cycle, pod *corev1.Pod, e *entry, limit int) *fwk.Status {
	e.closedBy.Store(c.number)
	if !c.wasRejected.Swap(true) {
		p.pods.rejected.Store(pod.UID, rejection{attempt: c.number, pod: pod})
	}

	metric := c.Rules.Policy.Metrics[c.Rules.Policy.Limits[limit].Metric].Name
	p.metrics.closed(metric)

	// Preemption would not help: the measured load contains evicted pods for minutes, and pods must not be lost
	// because of a warm node. Rebalancing moves pods, with budgets.
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonTooLoaded+metric)
}

// ErrReasonTooLoaded is followed by the name of the metric whose limit excluded the node. It has neither node nor
// numbers, so that the scheduler's event counts nodes by it.
const ErrReasonTooLoaded = "node(s) had too much load by "

// PreScore skips Score if no weighted metric is in force, and for pods whose node is given.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	c, err := p.cycle(state, pod)
	if err != nil {
		return fwk.AsStatus(err)
	}

	if !c.HasWeights() || isDaemon(pod) {
		return fwk.NewStatus(fwk.Skip)
	}

	return nil
}

// costScale converts costs to integers until NormalizeScore turns them into scores.
const costScale = 1e9

// Score returns the cost of the node, smaller is better; NormalizeScore inverts it.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, err := p.cycle(state, pod)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}

	object := info.Node()
	if object == nil || !c.HasWeights() {
		return 0, nil
	}

	e := p.find(c, object)
	slot := int(e.slot.Load())
	// A pod with the same usage may have been scored on this state of the node.
	if w := c.memo.find(slot, e, object); w != nil {
		c.attempt.scored(slot, w.word)
		return w.cost, nil
	}

	v := p.viewOf(c.fleetSnapshot, e, object)
	parts := c.CostOf(&v.Node, c.use, c.now)
	w := cachedScore{
		view:   v,
		object: object,
		word:   scoreWord(parts),
		cost:   int64(float64(parts.Cost) * costScale),
	}

	c.memo.keep(slot, w)
	c.attempt.scored(slot, w.word)
	return w.cost, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore converts costs into scores from 0 to 100.
func (p *Plugin) NormalizeScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	if len(scores) == 0 {
		return nil
	}

	c, err := p.cycle(state, pod)
	if err != nil {
		return fwk.AsStatus(err)
	}

	lowest, highest := scores[0].Score, scores[0].Score
	for i := range scores {
		lowest = min(lowest, scores[i].Score)
		highest = max(highest, scores[i].Score)
	}

	scale := nodeload.NewScale(costOf(lowest), costOf(highest), c.Step(c.use))
	for i := range scores {
		scores[i].Score = scale.Score(costOf(scores[i].Score))
	}

	c.attempt.scaled(scale)
	return nil
}

func costOf(score int64) nodeload.Cost { return nodeload.Cost(float64(score) / costScale) }

// Reserve adds the pod to the pending load of the node, for the plugins of all profiles.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c, err := p.cycle(state, pod)
	if err != nil {
		return fwk.AsStatus(err)
	}

	for _, peer := range p.peers() {
		peer.pods.reserved.Store(pod.UID, node)
		peer.placed(node, string(pod.UID), c.use)
		peer.pods.rejected.Delete(pod.UID)
	}

	p.ring.placed(c.attempt, node)
	p.events.placed(pod, c, node)
	return nil
}

// Unreserve removes the pod again. It may be called more than once, and without Reserve.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	for _, peer := range p.peers() {
		peer.pods.remove(pod.UID, node)
	}

	if data, err := state.Read(stateKey); err == nil {
		p.ring.unplaced(data.(*cycle).attempt)
	}
}
