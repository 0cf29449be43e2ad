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
	"crane.io/crane/pkg/series"
)

const (
	// censusPeriod is how often all nodes are looked at together, if pods come. Between two looks nothing of all nodes is
	// touched; what a node itself reports counts at once.
	censusPeriod = time.Second
	// forgetAfter is for how many looks a node may be missing before it is forgotten.
	forgetAfter = 120
)

// Policies is where the policy in force comes from; it may change at any time. Asking must cost next to nothing.
type Policies interface {
	Policy() *nodeload.Policy
}

// cluster is what the plugin knows of all nodes.
type cluster struct {
	clock    clock.PassiveClock
	policies Policies
	strategy nodeload.Strategy
	minFresh series.Ratio
	reader   reader
	log      logr.Logger
	told     *told

	entries sync.Map // name of a node to *entry
	rules   atomic.Pointer[nodeload.Rules]
	// refused is the policy that could not be used last.
	refused atomic.Pointer[nodeload.Policy]
	last    atomic.Pointer[census]
	// objects are the entries by the objects that the last census saw. They are not part of it, because attempts that are
	// remembered keep theirs, and would keep objects that are long replaced.
	objects atomic.Pointer[objects]
	memos   memos

	mu     sync.Mutex // one census at a time
	number uint64     // guarded by mu
}

// census is the result of a look at all nodes.
type census struct {
	*nodeload.Fleet
	// size is the number of nodes that were there to look at.
	size int
	// roster are the names of the nodes by their slot.
	roster []string
	// entries by name. A map that nobody changes is found faster in than one that somebody may.
	entries map[string]*entry
	// peaks of the nodes, raised by what has changed since.
	peaks *nodeload.Peaks
}

// objects find the entry of a node by its object: to look at names costs more than all else that is done for a node.
type objects = map[*corev1.Node]*entry

// find returns the entry of a node. One that has come since the census is not in it.
func (c *cluster) find(cycle *cycle, node *corev1.Node) *entry {
	if e, ok := cycle.objects[node]; ok {
		return e
	}
	if e, ok := cycle.entries[node.Name]; ok {
		return e
	}
	return c.entry(node.Name)
}

// raise takes into the peaks of the last census what a node has become.
func (c *cluster) raise(n *nodeload.Node) {
	if last := c.last.Load(); last != nil && n != nil {
		last.peaks.Raise(n)
	}
}

// placed puts a pod on its way to a node.
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

// currentRules are those of the policy in force. A policy that the plugin cannot use leaves the old rules in force.
func (c *cluster) currentRules() *nodeload.Rules {
	rules, policy := c.rules.Load(), c.policies.Policy()
	if rules.Policy == policy || c.refused.Load() == policy {
		return rules
	}
	next, err := nodeload.NewRules(policy, c.strategy)
	if err != nil {
		c.refused.Store(policy)
		c.log.Error(err, "New policy cannot be used, the old one stays in force")
		return rules
	}
	for _, warning := range policy.Warnings {
		c.log.Info("Policy", "warning", warning)
	}
	c.told.dropped(rules.Policy, policy)
	c.rules.Store(next)
	return next
}

// look returns the last census, or takes one if that is older than its period, of other rules, or of another number of
// nodes.
func (c *cluster) look(nodes []fwk.NodeInfo) *census {
	rules, now := c.currentRules(), c.clock.Now()
	if last := c.last.Load(); last != nil && last.Rules == rules && len(nodes) == last.size {
		if age := now.Sub(last.Time); age >= 0 && age < censusPeriod {
			return last
		}
	}
	return c.take(rules, nodes, now)
}

func (c *cluster) take(rules *nodeload.Rules, list []fwk.NodeInfo, now time.Time) *census {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	count := rules.NewCount(now)
	roster, entries := c.roll(list)
	peaks, seen := rules.NewPeaks(), make(objects, len(list))
	onWay := 0
	for _, info := range list {
		object := info.Node()
		if object == nil {
			continue
		}
		e := entries[object.Name]
		e.seen, seen[object] = c.number, e
		e.look(&c.reader, object, rules, now)
		requested := info.GetRequested()
		node := e.tick(now)
		onWay += node.Arriving
		peaks.Raise(node)
		count.Add(node, nodeload.Amount{
			CPU: series.MilliCPU(requested.GetMilliCPU()), Memory: series.Bytes(requested.GetMemory()),
		})
	}
	c.forget()
	taken := &census{Fleet: count.Fleet(c.minFresh), size: len(list), roster: roster, entries: entries, peaks: peaks}
	c.objects.Store(&seen)
	c.last.Store(taken)
	c.told.counted(taken, onWay)
	return taken
}

// roll names the nodes and gives each its slot. The names of the last census serve again while the nodes are the same:
// attempts that are remembered keep those of their time.
func (c *cluster) roll(list []fwk.NodeInfo) ([]string, map[string]*entry) {
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
	roster, entries := make([]string, 0, len(list)), make(map[string]*entry, len(list))
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

// forget drops nodes that are gone. Those that pods were sent to and that were never seen get the same time.
func (c *cluster) forget() {
	c.entries.Range(func(name, value any) bool {
		e := value.(*entry)
		switch {
		case e.seen == c.number:
		case e.seen == 0:
			e.seen = c.number - 1
		case c.number-e.seen > forgetAfter:
			c.entries.Delete(name)
		default:
			e.slot.Store(-1)
		}
		return true
	})
}

// known is what is known of a node in a cycle of a census.
func (c *cluster) known(taken *census, e *entry, node *corev1.Node) *view {
	if v := e.view.Load(); v != nil && v.object == node && v.Rules == taken.Rules {
		return v
	}
	v := e.look(&c.reader, node, taken.Rules, c.clock.Now())
	c.raise(&v.Node)
	return v
}

// NodeChanged takes up what a node reports. The node informer calls it; who drives the plugin without an informer may.
func (c *cluster) NodeChanged(object *corev1.Node) {
	c.raise(&c.entry(object.Name).look(&c.reader, object, c.rules.Load(), c.clock.Now()).Node)
}

// nodeHandler passes on what an informer tells. Nodes that are gone are forgotten by the looks at all of them.
func (c *cluster) nodeHandler() cache.ResourceEventHandler {
	changed := func(obj any) {
		if object, ok := obj.(*corev1.Node); ok {
			c.NodeChanged(object)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }}
}
