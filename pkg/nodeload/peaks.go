// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"
	"sync/atomic"

	"crane.io/crane/pkg/series"
)

// Peaks say how close the fullest of some nodes is to each limit, so that one comparison answers for all of them whether a pod
// can find one closed. They only rise; a new look at all nodes begins new ones. They are safe for concurrent use.
type Peaks struct {
	rules *Rules
	// loads are by limit the highest load with what is on its way, as the bits of a float64 of 0 or more, which are in the
	// order of the numbers; infinite where a node does not say.
	loads []atomic.Uint64
	// inverses are by resource that of the smallest node's capacity.
	inverses [kinds]atomic.Uint64
}

// NewPeaks are those of no node.
func (r *Rules) NewPeaks() *Peaks {
	return &Peaks{rules: r, loads: make([]atomic.Uint64, len(r.Policy.Limits))}
}

// Raise takes a node in. One that was made by other rules is left out.
func (p *Peaks) Raise(n *Node) {
	if n.Rules != p.rules {
		return
	}
	for i := range p.loads {
		metric := p.rules.Policy.Limits[i].Metric
		load := math.Inf(1)
		if n.fresh(metric) {
			load = float64(n.Loads[metric].Value + n.Loads[metric].OnWay)
		}
		raise(&p.loads[i], load)
	}
	for k := range p.inverses {
		raise(&p.inverses[k], n.inverse[k])
	}
}

func raise(to *atomic.Uint64, x float64) {
	bits := math.Float64bits(max(x, 0))
	for {
		old := to.Load()
		if bits <= old || to.CompareAndSwap(old, bits) {
			return
		}
	}
}

// MayClose tells whether one of the nodes may be closed for a pod that will use so much, or does not say how loaded it is by a
// metric that is limited. Where it is false, Closed is Open for each of them, and none is unknown.
func (f *Fleet) MayClose(p *Peaks, use Amount) bool {
	var inverse [kinds]float64
	for k := range inverse {
		inverse[k] = math.Float64frombits(p.inverses[k].Load())
	}
	for _, i := range f.limits {
		l := &f.Rules.Policy.Limits[i]
		share := f.Rules.share(use, f.Rules.kinds[l.Metric], inverse)
		if series.Ratio(math.Float64frombits(p.loads[i].Load()))+counted(share, l.Max) > l.Max {
			return true
		}
	}
	return false
}
