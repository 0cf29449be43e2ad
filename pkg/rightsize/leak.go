// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"

	"crane.io/crane/pkg/series"
)

const (
	// minSiblings is the number of replicas, with the leaking one, from which a leak can be identified.
	minSiblings = 4
	// leakGrowth is the factor by which the memory of a leaking replica has grown, leakFactor the factor by which it exceeds
	// the median of its siblings.
	leakGrowth = 1.5
	leakFactor = 1.5
	// leakStep is the largest share of the growth that may happen from one day to the next: more is a step to another level, as
	// of an elected leader, which the request must hold.
	leakStep = 0.4
	// leakPace is the part of its mean pace at which a leaking replica still grows in its last two days: others reached a plateau.
	leakPace = 0.5
	// siblingGrowth is the largest growth of the median sibling; beyond it the whole workload grows.
	siblingGrowth = 1.2
	// siblingAge is the part of the days of a replica that a sibling must have been observed: pods of different age differ.
	siblingAge = 0.5
	// maxLeakShare is the largest share of leaking replicas; a larger share is the behavior of the workload.
	maxLeakShare = 0.25
)

// leaks are the replicas whose memory grows while that of their siblings does not.
type leaks struct {
	pods   map[uint32]bool
	detail string
}

// podLife is the usage of one pod in the window.
type podLife struct {
	pod uint32
	// first and peak are the first and the largest memory in bytes, cpu the largest usage in cores.
	first, peak, cpu float32
	// unreclaimable is the part of the peak that the kernel cannot reclaim.
	unreclaimable float32
	// last is the last day with memory, maxima are the largest memory of each day with any, in order.
	last   series.Day
	maxima []dayValue
}

// findLeaks returns the replicas that leak: those that only grow until the end of the window, beside siblings of about their age
// that do not. A replica that is large from its start (a hot shard), that moves to another level (a leader), or that warms up does
// not leak: the request must hold it.
func findLeaks(days []*Day) leaks {
	replicas := 0
	for _, d := range days {
		replicas = max(replicas, len(d.Peaks))
	}

	if replicas < minSiblings {
		return leaks{}
	}

	lives := slices.DeleteFunc(podLives(days), func(l podLife) bool { return l.peak == 0 })
	out := leaks{pods: map[uint32]bool{}}
	worst := podLife{}
	replicas = 0
	medianPeak := 0.0
	for _, l := range lives {
		if !l.onlyGrows() {
			continue
		}

		siblings := siblingsOf(l, lives)
		if len(siblings)+1 < minSiblings {
			continue
		}

		peak, growth := medians(siblings)
		if growth > siblingGrowth || float64(l.peak) < leakFactor*peak {
			continue
		}

		out.pods[l.pod] = true
		if l.peak > worst.peak {
			worst = l
			replicas = len(siblings) + 1
			medianPeak = peak
		}
	}

	// The siblings include other leaking replicas.
	if n := len(out.pods); n == 0 || float64(n) > max(1, maxLeakShare*float64(replicas)) {
		return leaks{}
	}

	out.detail = fmt.Sprintf("%d of %d replicas of about the same age grew up to %.1f times, to %s, while the others stayed at about %s: sized by the others",
		len(out.pods), replicas, worst.growth(), formatBytes(float64(worst.peak)), formatBytes(medianPeak))
	return out
}

// siblingsOf returns the other pods that were observed at the same time as a pod, and for at least half as long.
func siblingsOf(l podLife, lives []podLife) []podLife {
	var out []podLife
	for _, other := range lives {
		if other.pod != l.pod && other.last >= l.last && float64(len(other.maxima)) >= siblingAge*float64(len(l.maxima)) {
			out = append(out, other)
		}
	}

	return out
}

// medians returns the median peak and growth of pods.
func medians(lives []podLife) (peak, growth float64) {
	peaks := make([]float64, len(lives))
	growths := make([]float64, len(lives))
	for i, l := range lives {
		peaks[i] = float64(l.peak)
		growths[i] = l.growth()
	}

	return median(peaks), median(growths)
}

// podLives merges the days of each pod.
func podLives(days []*Day) []podLife {
	index := map[uint32]int{}
	var lives []podLife
	for _, d := range days {
		for _, p := range d.Peaks {
			i, ok := index[p.Pod]
			if !ok {
				i = len(lives)
				index[p.Pod] = i
				lives = append(lives, podLife{pod: p.Pod, first: p.First})
			}

			life := &lives[i]
			if life.first == 0 {
				life.first = p.First
			}

			life.peak = max(life.peak, p.Peak)
			life.cpu = max(life.cpu, p.CPU)
			life.unreclaimable = max(life.unreclaimable, p.unreclaimable())
			if p.Peak > 0 {
				life.last = d.Day
				life.maxima = append(life.maxima, dayValue{value: float64(p.Peak), weight: 1})
			}
		}
	}

	return lives
}

// onlyGrows reports whether the memory of a pod grew steadily until its last day: neither to a plateau nor in one step.
func (l podLife) onlyGrows() bool {
	if l.growth() < leakGrowth {
		return false
	}

	grows, _ := growth(l.maxima)
	if !grows {
		return false
	}

	n := len(l.maxima)
	grown := l.maxima[n-1].value - l.maxima[0].value
	if recent := l.maxima[n-1].value - l.maxima[n-3].value; recent < 2*leakPace*grown/float64(n-1) {
		return false
	}

	largestStep := 0.0
	for i := 1; i < n; i++ {
		largestStep = max(largestStep, l.maxima[i].value-l.maxima[i-1].value)
	}

	return largestStep <= leakStep*grown
}

func (l podLife) growth() float64 {
	if l.first <= 0 {
		return 1
	}

	return float64(l.peak) / float64(l.first)
}

// median returns the median and sorts values; 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}

	slices.Sort(values)
	return values[len(values)/2]
}
