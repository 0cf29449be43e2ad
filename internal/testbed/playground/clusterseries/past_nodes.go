// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"math"
	"time"
)

// nodeHistory is the past of one node: the sum of its containers.
type nodeHistory struct {
	builder    *builder
	machine    machine
	containers []*containerHistory
	since      time.Time

	at     int // index of window[0] on the grid, -1 before the first
	window []nodeValues
	busy   float64
}

// computeWindow computes the window of n points starting at index first, unless it is the current one.
func (h *nodeHistory) computeWindow(first, n int) {
	if h.at == first {
		return
	}
	h.at = first
	if cap(h.window) < n {
		h.window = make([]nodeValues, n)
	}
	h.window = h.window[:n]
	clear(h.window)
	for _, c := range h.containers {
		c.computeWindow(first, n)
		for i := range c.window {
			m := &c.window[i]
			h.window[i].cpu += m.use
			if !math.IsNaN(m.memory) {
				h.window[i].memory += m.memory
			}
		}
	}
	grid := h.builder.grid
	for i := range h.window {
		f := &h.window[i]
		h.busy += f.cpu * grid.Step.Seconds()
		f.busy = h.busy
		f.elapsed = grid.Start.Add(time.Duration(first+i) * grid.Step).Sub(h.since).Seconds()
	}
}

// addNode adds the series of a node. It must be called after all pods were added.
func (b *builder) addNode(m machine) *nodeTotals {
	h := &nodeHistory{builder: b, machine: m, containers: b.byNode[m.name], since: b.past.Start.Add(-24 * time.Hour), at: -1}
	if b.resumed {
		h.since = b.grid.Start.Add(-b.grid.Step)
	}
	totals := &nodeTotals{since: h.since, until: b.grid.End}
	b.finish = append(b.finish, func() { totals.busy = h.busy })
	if m.cores <= 0 {
		return totals
	}
	for _, metric := range nodeMetrics() {
		m.eachSeries(metric, func(name string, pairs ...string) {
			b.push(name, pairs, func(dst []float64, first int) {
				h.computeWindow(first, len(dst))
				for i := range dst {
					dst[i] = metric.value(&h.machine, &h.window[i])
				}
			})
		})
	}
	return totals
}
