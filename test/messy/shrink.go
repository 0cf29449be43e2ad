// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy

import "slices"

// Shrink returns smaller cases, the smallest first. An event is replaced by Nothing, so that the others keep their rounds; a workload is dropped
// with its events.
func (c Case) Shrink() []Case {
	var out []Case
	add := func(smaller Case) {
		if text(smaller) != text(c) {
			out = append(out, smaller)
		}
	}

	if n := c.lastEvent(); n > 1 {
		for _, half := range [][2]int{{0, n / 2}, {n / 2, n}} {
			add(c.withoutEvents(half[0], half[1]))
		}
	}

	if len(c.Workloads) > 1 {
		for i := range c.Workloads {
			add(c.withoutWorkload(i))
		}
	}

	for i := range c.Events {
		if c.Events[i].Kind != Nothing {
			add(c.withoutEvents(i, i+1))
		}
	}

	for _, ns := range c.Namespace.shrink() {
		smaller := c
		smaller.Namespace = ns
		add(smaller)
	}

	for i, w := range c.Workloads {
		for _, simple := range w.shrink() {
			smaller := c
			smaller.Workloads = slices.Clone(c.Workloads)
			smaller.Workloads[i] = simple
			add(smaller)
		}
	}

	if n := c.lastEvent(); n < len(c.Events) {
		smaller := c
		smaller.Events = c.Events[:n]
		add(smaller)
	}

	return out
}

// lastEvent returns the number of events up to the last one that is not Nothing.
func (c Case) lastEvent() int {
	for i := len(c.Events); i > 0; i-- {
		if c.Events[i-1].Kind != Nothing {
			return i
		}
	}

	return 0
}

func (c Case) withoutEvents(from, to int) Case {
	c.Events = slices.Clone(c.Events)
	for i := from; i < to; i++ {
		c.Events[i] = Event{Kind: Nothing}
	}

	return c
}

// withoutWorkload drops a workload, and the events about it.
func (c Case) withoutWorkload(index int) Case {
	c.Workloads = slices.Delete(slices.Clone(c.Workloads), index, index+1)
	c.Events = slices.Clone(c.Events)
	for i := range c.Events {
		e := &c.Events[i]
		switch {
		case e.Workload == index && e.aboutWorkload():
			*e = Event{Kind: Nothing}
		case e.Workload > index:
			e.Workload--
		default:
			e.Workload = min(e.Workload, len(c.Workloads)-1)
		}
	}

	return c
}

// aboutWorkload reports whether the event concerns a single workload.
func (e Event) aboutWorkload() bool {
	switch e.Kind {
	case LimitRangeAppears, LimitRangeGone, QuotaAppears, QuotaGone, PolicyAppears, PolicyGone, Nothing:
		return false
	}

	return true
}

func (ns Namespace) shrink() []Namespace {
	var out []Namespace
	add := func(edit func(*Namespace)) {
		smaller := ns
		edit(&smaller)
		if text(smaller) != text(ns) {
			out = append(out, smaller)
		}
	}

	for i := range ns.LimitRanges {
		add(func(n *Namespace) { n.LimitRanges = slices.Delete(slices.Clone(ns.LimitRanges), i, i+1) })
	}

	add(func(n *Namespace) { n.Quotas = nil })
	add(func(n *Namespace) { n.PodSecurity = "" })
	add(func(n *Namespace) { n.Foreign = "" })
	add(func(n *Namespace) { n.MinCPU = 0 })
	return out
}

func (w Workload) shrink() []Workload {
	var out []Workload
	for _, edit := range []func(*Workload){
		func(w *Workload) { w.Containers = w.Containers[:1] },
		func(w *Workload) { w.Init = nil },
		func(w *Workload) { w.Sidecar = nil },
		func(w *Workload) { w.PodLevel = Amounts{} },
		func(w *Workload) { w.OnDelete = false },
		func(w *Workload) { w.Partition = 0 },
		func(w *Workload) { w.Recreate = false },
		func(w *Workload) { w.Paused = false },
		func(w *Workload) { w.MinAvailable = -1 },
		func(w *Workload) { w.Autoscaled = false },
		func(w *Workload) { w.VPA = "" },
		func(w *Workload) { w.Priority = false },
		func(w *Workload) { w.HostNetwork = false },
		func(w *Workload) { w.AdoptTemplate = false },
		func(w *Workload) { w.Reach = "" },
		func(w *Workload) { w.Replicas = 1 },
		func(w *Workload) { w.Kind = "Deployment" },
	} {
		smaller := w
		edit(&smaller)
		if text(smaller) != text(w) {
			out = append(out, smaller)
		}
	}

	return out
}
