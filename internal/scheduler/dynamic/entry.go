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
	"crane.io/crane/pkg/series"
)

// entry is one node.
type entry struct {
	// view is what decisions read; nil until the node was seen.
	view atomic.Pointer[view]
	// closedBy is the last attempt that found the node closed.
	closedBy atomic.Uint64
	// expired is set when a metric of the node becomes stale, by time alone.
	expired atomic.Bool
	// slot is the node's place in the roster of the last census.
	slot atomic.Int32

	mu       sync.Mutex
	arrivals nodeload.Arrivals // guarded by mu
	report   nodeload.Report   // of view.object by view.Rules; guarded by mu
	varies   [2]nodeload.Deviation
	uid      types.UID
	// seen is the census that saw the node last; of the census alone.
	seen uint64
}

// view is what is known of a node, and the object that it was read from. It is never changed. The Node is part of it and
// not pointed to: what a cycle reads of thousands of nodes is not in the processor's cache, and every pointer costs.
type view struct {
	nodeload.Node
	object *corev1.Node
	// made is when, in nanoseconds since 1970.
	made int64
}

// reader reads nodes.
type reader struct {
	format nodeload.Format
	// unreadable is called for annotations that cannot be read.
	unreadable func(nodeload.ParseErrors)
}

// look is what is known of the node by the rules; read anew only where the object or the rules are others than last time.
func (e *entry) look(r *reader, object *corev1.Node, rules *nodeload.Rules, now time.Time) *view {
	if v := e.view.Load(); v != nil && v.object == object && v.Rules == rules {
		return v
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read(r, object, rules, now)
}

// read needs mu.
func (e *entry) read(r *reader, object *corev1.Node, rules *nodeload.Rules, now time.Time) *view {
	if v := e.view.Load(); v != nil && v.object == object && v.Rules == rules {
		return v
	}
	if e.uid != object.UID {
		e.uid, e.varies = object.UID, [2]nodeload.Deviation{}
	}
	report, bad := read(r.format, object, rules)
	if bad != (nodeload.ParseErrors{}) {
		r.unreadable(bad)
	}
	for k, resource := range []nodeload.Resource{nodeload.CPU, nodeload.Memory} {
		gauge := rules.GaugeSample(resource, report.Samples)
		// A time of the future would end all learning.
		if !gauge.Time.IsZero() && !gauge.Time.After(now.Add(nodeload.MaxSkew)) {
			e.varies[k].Add(gauge)
		}
		report.Deviation[k] = e.varies[k].Ratio()
	}
	e.report = report
	return e.make(object, rules, now)
}

// make needs mu.
func (e *entry) make(object *corev1.Node, rules *nodeload.Rules, now time.Time) *view {
	v := &view{Node: *rules.NodeAt(e.report, &e.arrivals, now), object: object, made: now.UnixNano()}
	if old := e.view.Swap(v); old != nil && old.object == object && old.Rules == rules && old.Fresh&^v.Fresh != 0 {
		e.expired.Store(true)
	}
	return v
}

// stalePeriod is how often the pods on their way to a node without fresh metrics are looked at.
const stalePeriod = 15 * time.Second

// tick makes the view anew if time has changed it: a metric has become stale, or is and pods are on their way.
func (e *entry) tick(now time.Time) *nodeload.Node {
	v := e.view.Load()
	fresh := v.FreshAt(now)
	all := uint64(1)<<len(v.Loads) - 1
	aged := now.UnixNano()-v.made >= int64(stalePeriod)
	if fresh == v.Fresh && (fresh == all || v.Arriving == 0 || !aged) {
		return &v.Node
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v = e.view.Load()
	return &e.make(v.object, v.Rules, now).Node
}

// peek is what would be known of the node if it were object; nothing is changed.
func (e *entry) peek(r *reader, object *corev1.Node, rules *nodeload.Rules, now time.Time) *nodeload.Node {
	report, _ := read(r.format, object, rules)
	e.mu.Lock()
	defer e.mu.Unlock()
	return rules.PeekNode(report, &e.arrivals, now)
}

// placed puts a pod on its way that does not run yet, in time that does not grow with what is on its way already. It returns
// what the node is then; nil if it was on its way already, or the node was not seen yet.
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
	next := &view{Node: *v.WithPod(use), object: v.object, made: v.made}
	e.view.Store(next)
	return &next.Node
}

// change changes the arrivals and makes the view anew if that says that they are others now. It returns what the node is then,
// or nil as placed does.
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
	return &e.make(v.object, v.Rules, now).Node
}

func read(format nodeload.Format, object *corev1.Node, rules *nodeload.Rules) (nodeload.Report, nodeload.ParseErrors) {
	samples, bad := rules.Read(format, object.Annotations)
	return nodeload.Report{Capacity: capacity(object), Samples: samples}, bad
}

// capacity is the whole machine: loads are shares of it, and not of what is allocatable.
func capacity(node *corev1.Node) nodeload.Amount {
	resources := node.Status.Capacity
	if len(resources) == 0 {
		resources = node.Status.Allocatable
	}
	return amount(resources)
}

func amount(list corev1.ResourceList) nodeload.Amount {
	return nodeload.Amount{
		CPU:    series.MilliCPU(max(list.Cpu().MilliValue(), 0)),
		Memory: series.Bytes(max(list.Memory().Value(), 0)),
	}
}
