// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// entry is the state of one node.
type entry struct {
	// view is the input of decisions; nil until the node was seen.
	view atomic.Pointer[view]
	// closedBy is the number of the last attempt that found the node closed.
	closedBy atomic.Uint64
	// expired is set when a metric of the node becomes stale by time alone.
	expired atomic.Bool
	// slot is the node's index in the roster of the last snapshot.
	slot atomic.Int32

	mu         sync.Mutex
	arrivals   nodeload.Arrivals // guarded by mu
	report     nodeload.Report   // of view.object by view.Rules; guarded by mu
	deviations [2]nodeload.Deviation
	uid        types.UID
	// holds are the ends of the holds in the node's annotation, also of released ones, by pod; guarded by mu.
	holds map[string]time.Time
	// seen is the number of the last snapshot with the node; used by snapshots only.
	seen uint64
}

// view is an immutable state of a node and the object that it was read from. The Node is embedded instead of pointed
// to, because a cycle reads thousands of them and each pointer costs a cache miss.
type view struct {
	nodeload.Node
	object *corev1.Node
	// createdNanos is the creation time, in nanoseconds since 1970.
	createdNanos int64
}

// reader parses node annotations.
type reader struct {
	format nodeload.Format
	// unreadable is called for invalid annotations.
	unreadable func(nodeload.ParseErrors)
	holds      holdIndex
}

// refresh returns the view of the node by the rules; annotations are parsed only if the object or the rules have
// changed.
func (e *entry) refresh(r *reader, object *corev1.Node, rules *nodeload.Rules, now time.Time) *view {
	if v := e.view.Load(); v != nil && v.object == object && v.Rules == rules {
		return v
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	return e.read(r, object, rules, now)
}

// read parses the annotations; the caller holds mu.
func (e *entry) read(r *reader, object *corev1.Node, rules *nodeload.Rules, now time.Time) *view {
	if v := e.view.Load(); v != nil && v.object == object && v.Rules == rules {
		return v
	}

	if e.uid != object.UID {
		e.uid = object.UID
		e.deviations = [2]nodeload.Deviation{}
	}

	e.readHolds(&r.holds, object, now)
	report, parseErrors := read(r.format, object, rules)
	if parseErrors != (nodeload.ParseErrors{}) {
		r.unreadable(parseErrors)
	}

	// The deviation of a node's load is learned from its samples, one gauge per resource.
	for k, resource := range []units.Resource{units.CPU, units.Memory} {
		gauge := rules.GaugeSample(resource, report.Samples)
		// A sample from the future would block all later ones.
		if !gauge.Time.IsZero() && !gauge.Time.After(now.Add(nodeload.MaxSkew)) {
			e.deviations[k].Add(gauge)
		}

		report.Deviation[k] = e.deviations[k].Ratio()
	}

	e.report = report
	return e.buildView(object, rules, now)
}

// buildView builds the view; the caller holds mu.
func (e *entry) buildView(object *corev1.Node, rules *nodeload.Rules, now time.Time) *view {
	v := &view{Node: *rules.NodeAt(e.report, &e.arrivals, now), object: object, createdNanos: now.UnixNano()}
	if old := e.view.Swap(v); old != nil && old.object == object && old.Rules == rules && old.Fresh&^v.Fresh != 0 {
		e.expired.Store(true)
	}

	return v
}

// stalePeriod is the interval of updates of a node without fresh metrics that has arriving pods.
const stalePeriod = 15 * time.Second

// tick rebuilds the view if time has changed it: a metric has become stale, or is stale and pods are arriving.
func (e *entry) tick(now time.Time) *nodeload.Node {
	v := e.view.Load()
	fresh := v.FreshAt(now)
	all := uint64(1)<<len(v.Loads) - 1

	aged := now.UnixNano()-v.createdNanos >= int64(stalePeriod)
	if fresh == v.Fresh && (fresh == all || v.Arriving == 0 || !aged) {
		return &v.Node
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	v = e.view.Load()
	return &e.buildView(v.object, v.Rules, now).Node
}

// preview returns the view that object would have. It changes nothing but removes ended holds.
func (e *entry) preview(r *reader, object *corev1.Node, rules *nodeload.Rules, now time.Time) *nodeload.Node {
	report, _ := read(r.format, object, rules)
	e.mu.Lock()
	defer e.mu.Unlock()

	e.expireHolds(now)
	return rules.PeekNode(report, &e.arrivals, now)
}

// placed adds an arriving pod that does not run yet, in constant time. It returns the new node, or nil if the pod was
// added before or the node was not seen yet.
func (e *entry) placed(pod string, use nodeload.Amount) *nodeload.Node {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.arrivals.Has(pod) {
		return nil
	}

	e.arrivals.Add(pod, use, time.Time{})
	v := e.view.Load()
	if v == nil {
		return nil
	}

	next := &view{Node: *v.WithPod(use), object: v.object, createdNanos: v.createdNanos}
	e.view.Store(next)
	return &next.Node
}

// change changes the arrivals and rebuilds the view if do returns true. It returns the new node, or nil as placed
// does.
func (e *entry) change(now time.Time, do func(*nodeload.Arrivals) bool) *nodeload.Node {
	e.mu.Lock()
	defer e.mu.Unlock()

	if !do(&e.arrivals) {
		return nil
	}

	v := e.view.Load()
	if v == nil {
		return nil
	}

	return &e.buildView(v.object, v.Rules, now).Node
}

func read(format nodeload.Format, object *corev1.Node, rules *nodeload.Rules) (nodeload.Report, nodeload.ParseErrors) {
	samples, bad := rules.Read(format, object.Annotations)
	return nodeload.Report{Capacity: capacity(object), Samples: samples}, bad
}

// capacity returns the capacity of the node: loads are shares of it, not of the allocatable resources.
func capacity(node *corev1.Node) nodeload.Amount {
	resources := node.Status.Capacity
	if len(resources) == 0 {
		resources = node.Status.Allocatable
	}

	return amount(resources)
}

func amount(list corev1.ResourceList) nodeload.Amount {
	return nodeload.Amount{
		CPU:    units.MilliCPU(max(list.Cpu().MilliValue(), 0)),
		Memory: units.Bytes(max(list.Memory().Value(), 0)),
	}
}
