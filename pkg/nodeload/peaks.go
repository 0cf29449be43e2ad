// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"
	"sync/atomic"
	"time"

	"crane.io/crane/pkg/units"
)

// Peaks bound how close any node of a set is to each limit, so that one comparison decides whether a pod can find any
// of them closed. They only rise; a new run over all nodes starts new ones. They are safe for concurrent use.
type Peaks struct {
	rules *Rules
	// loads holds by limit the highest load with pending load, as the bits of a non-negative float64, whose order is
	// that of the numbers; infinite if a node does not report.
	loads []atomic.Uint64
	// inverses holds by resource the inverse of the smallest node's capacity.
	inverses [kinds]atomic.Uint64
}

// NewPeaks returns the peaks of no node.
func (r *Rules) NewPeaks() *Peaks {
	return &Peaks{rules: r, loads: make([]atomic.Uint64, len(r.Policy.Limits))}
}

// Raise adds a node. One created by other rules is ignored.
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

// MayClose reports whether any of the nodes may be closed for a pod with the given usage, or does not report a
// limited metric. If false, Closed is Open for each of them, and none is unknown.
func (f *Fleet) MayClose(p *Peaks, use Amount) bool {
	var inverse [kinds]float64
	for k := range inverse {
		inverse[k] = math.Float64frombits(p.inverses[k].Load())
	}

	for _, i := range f.limits {
		l := &f.Rules.Policy.Limits[i]
		share := f.Rules.share(use, f.Rules.kinds[l.Metric], inverse)
		if units.Ratio(math.Float64frombits(p.loads[i].Load()))+counted(share, l.Max) > l.Max {
			return true
		}
	}

	return false
}

// deviationMemory is the time constant of the variation: the weight of a sample falls to 1/e in it.
const deviationMemory = time.Hour

// minSamples is the number of samples before the variation is used.
const minSamples = 5

// Deviation is the exponentially weighted standard deviation of a load over about an hour, with weights by time. The
// zero Deviation has no samples.
type Deviation struct {
	last     time.Time
	samples  int
	mean     float64
	variance float64
}

// Add adds a sample; one that is not newer than the last is ignored.
func (d *Deviation) Add(s Sample) {
	if !s.Time.After(d.last) {
		return
	}

	x := min(float64(s.Value), 1)
	if d.samples == 0 {
		d.mean = x
	} else {
		// The first samples have equal weights, so that the first one does not dominate the first hour.
		weight := max(1-math.Exp(-float64(s.Time.Sub(d.last))/float64(deviationMemory)), 1/float64(d.samples+1))
		delta := x - d.mean
		d.mean += weight * delta
		d.variance = (1 - weight) * (d.variance + weight*delta*delta)
	}

	d.last = s.Time
	d.samples = min(d.samples+1, math.MaxInt32)
}

// Ratio returns the standard deviation as a fraction of capacity, 0 with too few samples.
func (d *Deviation) Ratio() units.Ratio {
	if d.samples < minSamples {
		return 0
	}

	return units.Ratio(math.Sqrt(max(d.variance, 0)))
}
