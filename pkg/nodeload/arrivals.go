// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"time"

	"crane.io/crane/pkg/series"
)

// Warmup is how long after its start a pod's use is not yet that of its life. It also covers what a measurement looks
// back: a rate over one or two scrapes of 15 seconds.
const Warmup = 30 * time.Second

// onWay is a pod of which the samples of its node do not know all yet.
type onWay struct {
	use Amount
	// started is when the node said that it runs; zero before.
	started time.Time
	// ended is when it ended; zero before.
	ended time.Time
}

// Arrivals are the pods on their way to one node and off it: placed, and not wholly in the samples of its load, or ended,
// and still in them. They are gone when every metric covers them.
//
// It is not safe for concurrent use.
type Arrivals struct {
	pods map[string]onWay
}

// Len is the number of pods on their way to the node; those that ended do not count.
func (a *Arrivals) Len() int {
	n := 0
	for _, p := range a.pods {
		if p.ended.IsZero() {
			n++
		}
	}
	return n
}

// Has tells whether the pod is on its way.
func (a *Arrivals) Has(pod string) bool {
	_, on := a.pods[pod]
	return on
}

// Add puts a pod on its way, named by what tells it from all others (its UID). started is zero as long as it does not run.
func (a *Arrivals) Add(pod string, use Amount, started time.Time) {
	if a.pods == nil {
		a.pods = map[string]onWay{}
	}
	a.pods[pod] = onWay{use: use, started: started}
}

// Start says since when a pod runs; the first time counts. It tells whether that was news.
func (a *Arrivals) Start(pod string, started time.Time) bool {
	p, on := a.pods[pod]
	if !on || !p.started.IsZero() || !p.ended.IsZero() || started.IsZero() {
		return false
	}
	p.started = started
	a.pods[pod] = p
	return true
}

// Remove takes a pod off, and tells whether it was there.
func (a *Arrivals) Remove(pod string) bool {
	if !a.Has(pod) {
		return false
	}
	delete(a.pods, pod)
	return true
}

// End says that a pod ended. One that never ran is taken off; one that ran stays until the averages that hold its use have
// passed: they tell of a load that is not there any more. use and started count for a pod that is not on its way, because
// its start is covered already; started is zero for one that never ran. It tells whether that was news.
func (a *Arrivals) End(pod string, use Amount, started, ended time.Time) bool {
	p, on := a.pods[pod]
	if !on {
		p = onWay{use: use, started: started}
	}
	switch {
	case !p.ended.IsZero():
		return false
	case p.started.IsZero():
		return a.Remove(pod)
	}
	if a.pods == nil {
		a.pods = map[string]onWay{}
	}
	p.ended = ended
	a.pods[pod] = p
	return true
}

// Coverage is the part of a pod's use that an average over window holds, if it was measured at the time measured and the
// pod started at started: nothing before the pod runs and for Warmup after, all of it after the window as well, and in
// between the part of the window that it ran in:
//
//	min(1, max(0, (measured - started - Warmup) / window))
//
// So an average of five minutes, taken 150 seconds after a pod was warm, holds half of its use, and the other half is
// still to be added.
func Coverage(started, measured time.Time, window time.Duration) series.Ratio {
	if started.IsZero() || measured.IsZero() {
		return 0
	}
	since := measured.Sub(started) - Warmup
	switch {
	case since <= 0:
		return 0
	case since >= window:
		return 1
	}
	return series.Ratio(float64(since) / float64(window))
}

// Held is the part of an ended pod's use that an average over window still holds: the part of the window in which it ran,
//
//	Coverage(started) - min(1, max(0, (measured - ended) / window))
func Held(started, ended, measured time.Time, window time.Duration) series.Ratio {
	past := min(max(float64(measured.Sub(ended))/float64(window), 0), 1)
	return max(Coverage(started, measured, window)-series.Ratio(past), 0)
}

// coming is what of the pods on their way is not covered by a metric, less what it holds of those that ended, in units of its
// resource.
func (a *Arrivals) coming(kind kind, measured time.Time, window time.Duration) float64 {
	var sum float64
	for _, p := range a.pods {
		if p.ended.IsZero() {
			sum += p.use.of(kind) * float64(1-Coverage(p.started, measured, window))
		} else {
			sum -= p.use.of(kind) * float64(Held(p.started, p.ended, measured, window))
		}
	}
	return sum
}

// drop takes off the pods that every metric covers of those that count pods.
func (a *Arrivals) drop(measured []time.Time, windows []time.Duration, counting []bool) {
	for name, p := range a.pods {
		covered := !p.started.IsZero()
		for m := 0; covered && m < len(measured); m++ {
			switch {
			case !counting[m]:
			case p.ended.IsZero():
				covered = Coverage(p.started, measured[m], windows[m]) >= 1
			default:
				covered = measured[m].Sub(p.ended) >= windows[m]
			}
		}
		if covered {
			delete(a.pods, name)
		}
	}
}
