// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

const (
	// censusPeriod is the interval between fleet snapshots while pods are scheduled. Between two of them no node is
	// read that is not evaluated; a changed node object takes effect at once.
	censusPeriod = time.Second
	// dropAfter is the number of snapshots without a node after which it is dropped.
	dropAfter = 120
)

// Policies returns the policy in force, which may change at any time. It must be cheap.
type Policies interface {
	Policy() *nodeload.Policy
}

// cluster is the plugin's state of all nodes.
type cluster struct {
	clock           clock.PassiveClock
	policies        Policies
	strategy        nodeload.Strategy
	minFresh        units.Ratio
	reader          reader
	log             logr.Logger
	snapshotMetrics *profileMetrics

	entries sync.Map // name of a node to *entry
	rules   atomic.Pointer[nodeload.Rules]
	// refused is the last policy that could not be used.
	refused atomic.Pointer[nodeload.Policy]
	last    atomic.Pointer[fleetSnapshot]
	// objects are the entries by the node objects of the last snapshot. They are not part of it, because recorded
	// attempts keep their snapshot, and would keep replaced objects alive.
	objects atomic.Pointer[objects]
	memos   memos

	mu     sync.Mutex // serializes snapshots
	number uint64     // guarded by mu
}

// fleetSnapshot is the state of all nodes at one time.
type fleetSnapshot struct {
	*nodeload.Fleet
	// size is the number of nodes.
	size int
	// roster holds the names of the nodes by their slot.
	roster []string
	// entries by name. An immutable map is faster than a sync.Map.
	entries map[string]*entry
	// peaks of the nodes, raised by changes since.
	peaks *nodeload.Peaks
}

// objects finds the entry of a node by its object: a lookup by name would dominate the cost per node.
type objects = map[*corev1.Node]*entry

// find returns the entry of a node. A node added since the snapshot is not in it.
func (c *cluster) find(cycle *cycle, node *corev1.Node) *entry {
	if e, ok := cycle.objects[node]; ok {
		return e
	}

	if e, ok := cycle.entries[node.Name]; ok {
		return e
	}

	return c.entry(node.Name)
}

// raise adds a changed node to the peaks of the last snapshot.
func (c *cluster) raise(n *nodeload.Node) {
	if last := c.last.Load(); last != nil && n != nil {
		last.peaks.Raise(n)
	}
}

// placed adds an arriving pod to a node.
func (c *cluster) placed(node, pod string, use nodeload.Amount) {
	c.raise(c.entry(node).placed(pod, use))
}

func (c *cluster) entry(node string) *entry {
	if e, ok := c.entries.Load(node); ok {
		return e.(*entry)
	}

	fresh := &entry{}
	fresh.slot.Store(-1)
	e, _ := c.entries.LoadOrStore(node, fresh)

	return e.(*entry)
}

// currentRules returns the rules of the policy in force. An unusable policy leaves the old rules in force.
func (c *cluster) currentRules() *nodeload.Rules {
	rules := c.rules.Load()
	policy := c.policies.Policy()
	if rules.Policy == policy || c.refused.Load() == policy {
		return rules
	}

	next, err := nodeload.NewRules(policy, c.strategy)
	if err != nil {
		c.refused.Store(policy)
		c.log.Error(err, "new policy cannot be used, the old one stays in force")
		return rules
	}

	for _, warning := range policy.Warnings {
		c.log.Info("policy has a warning", "warning", warning)
	}

	c.snapshotMetrics.dropMetrics(rules.Policy, policy)
	c.rules.Store(next)
	return next
}

// summarize returns the last snapshot, or builds one if that is older than its period, of other rules, or of another
// number of nodes.
func (c *cluster) summarize(nodes []fwk.NodeInfo) *fleetSnapshot {
	rules := c.currentRules()
	now := c.clock.Now()
	if last := c.last.Load(); last != nil && last.Rules == rules && len(nodes) == last.size {
		if age := now.Sub(last.Time); age >= 0 && age < censusPeriod {
			return last
		}
	}

	return c.takeSnapshot(rules, nodes, now)
}

// takeSnapshot reads all nodes: it refreshes their entries, and computes the totals and peaks of the fleet.
func (c *cluster) takeSnapshot(rules *nodeload.Rules, list []fwk.NodeInfo, now time.Time) *fleetSnapshot {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.number++
	count := rules.NewCount(now)
	roster, entries := c.nodeSlots(list)

	peaks := rules.NewPeaks()
	seen := make(objects, len(list))
	onWay := 0
	for _, info := range list {
		object := info.Node()
		// A node deleted while the list was built has no object.
		if object == nil {
			continue
		}

		e := entries[object.Name]
		e.seen = c.number
		seen[object] = e
		e.refresh(&c.reader, object, rules, now)
		requested := info.GetRequested()

		node := e.tick(now)
		onWay += node.Arriving
		peaks.Raise(node)
		count.Add(node, nodeload.Amount{
			CPU: units.MilliCPU(requested.GetMilliCPU()), Memory: units.Bytes(requested.GetMemory()),
		})
	}

	c.dropGoneNodes()
	snapshot := &fleetSnapshot{
		Fleet:   count.Fleet(c.minFresh),
		size:    len(list),
		roster:  roster,
		entries: entries,
		peaks:   peaks,
	}

	// Cycles read objects and last without the lock, so they are stored whole.
	c.objects.Store(&seen)
	c.last.Store(snapshot)
	c.snapshotMetrics.recordSnapshot(snapshot, onWay)

	return snapshot
}

// nodeSlots returns the node names and entries, and assigns slots. The names of the last snapshot are shared while
// the nodes are the same: recorded attempts keep theirs.
func (c *cluster) nodeSlots(list []fwk.NodeInfo) ([]string, map[string]*entry) {
	if last := c.last.Load(); last != nil && len(last.roster) == len(list) {
		same := true
		for i := 0; same && i < len(list); i++ {
			object := list[i].Node()
			same = object != nil && object.Name == last.roster[i]
		}

		if same {
			return last.roster, last.entries
		}
	}

	roster := make([]string, 0, len(list))
	entries := make(map[string]*entry, len(list))
	for _, info := range list {
		if object := info.Node(); object != nil {
			e := c.entry(object.Name)
			e.slot.Store(int32(len(roster)))
			roster = append(roster, object.Name)
			entries[object.Name] = e
		}
	}

	return roster, entries
}

// dropGoneNodes drops deleted nodes. Nodes with reserved pods that were never seen are kept as long.
func (c *cluster) dropGoneNodes() {
	c.entries.Range(func(name, value any) bool {
		e := value.(*entry)
		switch {
		case e.seen == c.number:
		case e.seen == 0:
			e.seen = c.number - 1
		case c.number-e.seen > dropAfter:
			c.entries.Delete(name)
		default:
			e.slot.Store(-1)
		}

		return true
	})
}

// viewOf returns the view of a node in a cycle.
func (c *cluster) viewOf(snapshot *fleetSnapshot, e *entry, node *corev1.Node) *view {
	if v := e.view.Load(); v != nil && v.object == node && v.Rules == snapshot.Rules {
		return v
	}

	v := e.refresh(&c.reader, node, snapshot.Rules, c.clock.Now())
	c.raise(&v.Node)
	return v
}

// NodeChanged processes a node object. The node informer calls it, or the driver of a plugin without an informer.
func (c *cluster) NodeChanged(object *corev1.Node) {
	c.raise(&c.entry(object.Name).refresh(&c.reader, object, c.rules.Load(), c.clock.Now()).Node)
}

// nodeHandler forwards informer events. Deleted nodes are dropped by the snapshots.
func (c *cluster) nodeHandler() cache.ResourceEventHandler {
	changed := func(obj any) {
		if object, ok := obj.(*corev1.Node); ok {
			c.NodeChanged(object)
		}
	}

	return cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }}
}
