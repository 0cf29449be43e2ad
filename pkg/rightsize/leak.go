// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"
)

const (
	// minSiblings is the number of replicas from which a leaking one can be identified.
	minSiblings = 4
	// leakGrowth is the factor by which the memory of a leaking replica has grown, leakFactor the factor by which it exceeds
	// the median of its siblings.
	leakGrowth = 1.5
	leakFactor = 1.5
	// siblingGrowth is the largest growth of the median sibling; beyond it the whole workload grows.
	siblingGrowth = 1.2
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
}

// findLeaks returns the replicas that leak. A replica that is large from its start (a leader, a hot shard) does not leak:
// the request must hold it.
func findLeaks(days []*Day) leaks {
	replicas := 0
	for _, d := range days {
		replicas = max(replicas, len(d.Peaks))
	}

	if replicas < minSiblings {
		return leaks{}
	}

	lives := slices.DeleteFunc(podLives(days), func(l podLife) bool { return l.peak == 0 })
	if len(lives) < minSiblings {
		return leaks{}
	}

	// The median sibling distinguishes a leak from a workload that grows.
	peaks := make([]float64, len(lives))

	growths := make([]float64, len(lives))
	for i, l := range lives {
		peaks[i] = float64(l.peak)
		growths[i] = l.growth()
	}

	medianPeak := median(peaks)
	medianGrowth := median(growths)
	if medianPeak == 0 || medianGrowth > siblingGrowth {
		return leaks{}
	}

	out := leaks{pods: map[uint32]bool{}}
	worst := podLife{}
	for _, l := range lives {
		if l.growth() >= leakGrowth && float64(l.peak) >= leakFactor*medianPeak {
			out.pods[l.pod] = true
			if l.peak > worst.peak {
				worst = l
			}
		}
	}

	if n := len(out.pods); n == 0 || float64(n) > max(1, maxLeakShare*float64(len(lives))) {
		return leaks{}
	}

	out.detail = fmt.Sprintf("%d of %d replicas grew up to %.1f times, to %s, while the others stayed at about %s: sized by the others",
		len(out.pods), len(lives), worst.growth(), formatBytes(float64(worst.peak)), formatBytes(medianPeak))
	return out
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

			if lives[i].first == 0 {
				lives[i].first = p.First
			}

			lives[i].peak = max(lives[i].peak, p.Peak)
			lives[i].cpu = max(lives[i].cpu, p.CPU)
			lives[i].unreclaimable = max(lives[i].unreclaimable, p.unreclaimable())
		}
	}

	return lives
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
