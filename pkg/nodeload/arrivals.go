// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"time"

	"crane.io/crane/pkg/units"
)

// Warmup is the time after its start during which a pod's usage is not yet typical. It also covers the range of a
// rate over one or two scrapes of 15 seconds.
const Warmup = 30 * time.Second

// pendingPod is a pod that is not fully contained in the samples of its node.
type pendingPod struct {
	// use is the expected usage.
	use Amount
	// credit replaces use after the end.
	credit Credit
	// started is when the pod started to run; zero before.
	started time.Time
	// ended is when it ended; zero before.
	ended time.Time
}

// Arrivals are the pods that are placed on one node but not fully contained in its samples, and the pods that have
// ended but are still contained. A pod is dropped when every metric covers it.
//
// It is not safe for concurrent use.
type Arrivals struct {
	pods map[string]pendingPod
}

// Len returns the number of pods that are arriving, without those that ended.
func (a *Arrivals) Len() int {
	n := 0
	for _, p := range a.pods {
		if p.ended.IsZero() {
			n++
		}
	}

	return n
}

// Has reports whether the pod is arriving.
func (a *Arrivals) Has(pod string) bool {
	_, ok := a.pods[pod]
	return ok
}

// Add adds an arriving pod, identified by its UID. started is zero until it runs.
func (a *Arrivals) Add(pod string, use Amount, started time.Time) {
	if a.pods == nil {
		a.pods = map[string]pendingPod{}
	}
	a.pods[pod] = pendingPod{use: use, started: started}
}

// Start sets the start of a pod; the first call counts. It reports whether the start was new.
func (a *Arrivals) Start(pod string, started time.Time) bool {
	p, ok := a.pods[pod]
	if !ok || !p.started.IsZero() || !p.ended.IsZero() || started.IsZero() {
		return false
	}

	p.started = started
	a.pods[pod] = p
	return true
}

// Remove removes a pod and reports whether it was there.
func (a *Arrivals) Remove(pod string) bool {
	if !a.Has(pod) {
		return false
	}

	delete(a.pods, pod)
	return true
}

// End records the end of a pod. A pod that never ran is removed; of one that ran, the credit is subtracted until the
// averages that contain its usage have passed. started applies to a pod that has been dropped already, because its start
// is covered; it is zero for one that never ran. It reports whether the end changed anything.
func (a *Arrivals) End(pod string, credit Credit, started, ended time.Time) bool {
	p, ok := a.pods[pod]
	if !ok {
		p = pendingPod{started: started}
	}

	switch {
	case !p.ended.IsZero():
		return false
	case p.started.IsZero():
		return a.Remove(pod)
	}

	if a.pods == nil {
		a.pods = map[string]pendingPod{}
	}

	p.credit = credit
	p.ended = ended
	a.pods[pod] = p

	return true
}

// Coverage returns the share of a pod's usage that an average over window contains, if it was measured at measured
// and the pod started at started: nothing before the pod runs and for Warmup after, all of it after the window as
// well, and in between the part of the window in which it ran:
//
//	min(1, max(0, (measured - started - Warmup) / window))
//
// For example, an average of five minutes, measured 150 seconds after the warm-up, contains half of the usage, and
// the other half is still to be added.
func Coverage(started, measured time.Time, window time.Duration) units.Ratio {
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

	return units.Ratio(float64(since) / float64(window))
}

// ResidualShare returns the share of an ended pod's usage that an average over window still contains: the part of the
// window in which it ran,
//
//	Coverage(started) - min(1, max(0, (measured - ended) / window))
func ResidualShare(started, ended, measured time.Time, window time.Duration) units.Ratio {
	past := min(max(float64(measured.Sub(ended))/float64(window), 0), 1)
	return max(Coverage(started, measured, window)-units.Ratio(past), 0)
}

// pendingLoad returns the usage of arriving pods that a metric does not contain, less that of ended pods that it
// still contains, in units of its resource. Estimated credits only make up for arriving pods, such as those that
// replace the ended ones: they never make a node look less loaded than measured.
func (a *Arrivals) pendingLoad(kind kind, measured time.Time, window time.Duration) float64 {
	var arriving, estimated, departed float64
	for _, p := range a.pods {
		if p.ended.IsZero() {
			arriving += p.use.of(kind) * float64(1-Coverage(p.started, measured, window))
			continue
		}

		residual := float64(ResidualShare(p.started, p.ended, measured, window))
		estimated += p.credit.Estimated.of(kind) * residual
		departed += p.credit.Measured.of(kind) * residual
	}

	return max(arriving-estimated, 0) - departed
}

// dropCovered removes the pods that every counting metric covers.
func (a *Arrivals) dropCovered(measured []time.Time, windows []time.Duration, counting []bool) {
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
