// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"
)

const (
	// minSiblings is the number of replicas below which nobody can say which one is the odd one.
	minSiblings = 4
	// leakGrowth is how many times its own first memory a leaking replica holds, leakFactor how many times the median
	// of its siblings.
	leakGrowth = 1.5
	leakFactor = 1.5
	// siblingGrowth is the most that the median sibling may have grown meanwhile: beyond it the workload grows.
	siblingGrowth = 1.2
	// maxLeakShare is the largest share of replicas that can be called leaking; more is the nature of the workload.
	maxLeakShare = 0.25
)

// leaks are the replicas whose memory grows while that of their siblings does not.
type leaks struct {
	pods   map[uint32]bool
	detail string
}

// podLife is what one pod used over the window.
type podLife struct {
	pod uint32
	// first and peak are memory in bytes, cpu is in cores.
	first, peak, cpu float32
	// unreclaimable is how much of the peak could not be given back.
	unreclaimable float32
}

// findLeaks looks for replicas that leak. A replica that is large from its start on (a leader, a hot shard) is not one:
// the request must hold it.
func findLeaks(days []*Day) leaks {
	most := 0
	for _, d := range days {
		most = max(most, len(d.Peaks))
	}
	if most < minSiblings {
		return leaks{}
	}
	lives := slices.DeleteFunc(podLives(days), func(l podLife) bool { return l.peak == 0 })
	if len(lives) < minSiblings {
		return leaks{}
	}
	peaks, growths := make([]float64, len(lives)), make([]float64, len(lives))
	for i, l := range lives {
		peaks[i], growths[i] = float64(l.peak), l.growth()
	}
	median, grown := median(peaks), median(growths)
	if median == 0 || grown > siblingGrowth {
		return leaks{}
	}
	found := leaks{pods: map[uint32]bool{}}
	worst := podLife{}
	for _, l := range lives {
		if l.growth() >= leakGrowth && float64(l.peak) >= leakFactor*median {
			found.pods[l.pod] = true
			if l.peak > worst.peak {
				worst = l
			}
		}
	}
	if n := len(found.pods); n == 0 || float64(n) > max(1, maxLeakShare*float64(len(lives))) {
		return leaks{}
	}
	found.detail = fmt.Sprintf("%d of %d replicas grew up to %.1f times, to %s, while the others stayed at about %s: sized by the others",
		len(found.pods), len(lives), worst.growth(), formatBytes(float64(worst.peak)), formatBytes(median))
	return found
}

// podLives joins the days of each pod: its first memory, and its largest use.
func podLives(days []*Day) []podLife {
	index := map[uint32]int{}
	var lives []podLife
	for _, d := range days {
		for _, p := range d.Peaks {
			i, known := index[p.Pod]
			if !known {
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

// median is the median; it sorts values. 0 where there is none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
