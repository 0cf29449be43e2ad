// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"slices"
	"time"
)

// Binds counts the placements on each node in the ranges of a policy. Windows are exact: a pod counts once, from the
// second of its placement until the range has passed or the pod is deleted. A placement costs O(1) if it is not older
// than the last one of its node, the usual case; nothing is dropped for lack of space, and nothing is kept longer
// than the longest range or than the pod or node exists.
//
// It is not safe for concurrent use.
type Binds struct {
	ranges  []HotRange
	longest time.Duration
	nodes   map[string][]placement
	pods    map[string]placed
}

type placement struct {
	at  time.Time
	pod string
}

type placed struct {
	node string
	at   time.Time
}

// NewBinds returns a counter without placements.
func NewBinds(ranges []HotRange) *Binds {
	b := &Binds{ranges: ranges, nodes: map[string][]placement{}, pods: map[string]placed{}}
	for _, r := range ranges {
		b.longest = max(b.longest, r.Range)
	}

	return b
}

// Add counts the pod, identified by its UID, on the node from at. A pod that is counted already keeps its time; on
// another node it is counted there only. Placements older than the longest range are ignored; now is the current
// time.
func (b *Binds) Add(pod, node string, at, now time.Time) {
	if old, ok := b.pods[pod]; ok {
		if old.node == node {
			return
		}

		b.Remove(pod)
	}

	if b.expired(at, now, b.longest) {
		return
	}

	window := b.expire(node, now)
	i := len(window)
	for i > 0 && window[i-1].at.After(at) {
		i--
	}

	b.nodes[node] = slices.Insert(window, i, placement{at: at, pod: pod})
	b.pods[pod] = placed{node: node, at: at}
}

// Remove removes a deleted pod.
func (b *Binds) Remove(pod string) {
	old, ok := b.pods[pod]
	if !ok {
		return
	}

	delete(b.pods, pod)
	window := b.nodes[old.node]
	if i := slices.IndexFunc(window, func(p placement) bool { return p.pod == pod }); i >= 0 {
		b.keep(old.node, slices.Delete(window, i, i+1))
	}
}

// Count returns the number of placements on the node in each of the ranges, including future ones, for HotValue. The
// result is a copy.
func (b *Binds) Count(node string, now time.Time) []int64 {
	window := b.expire(node, now)
	b.keep(node, window)

	counts := make([]int64, len(b.ranges))
	for i, r := range b.ranges {
		from, _ := slices.BinarySearchFunc(window, now, func(p placement, now time.Time) int {
			if b.expired(p.at, now, r.Range) {
				return -1
			}

			return 1
		})

		counts[i] = int64(len(window) - from)
	}

	return counts
}

// expired reports whether at is outside a window. A placement counts for less than the window, as in gocrane.
func (*Binds) expired(at, now time.Time, window time.Duration) bool { return now.Sub(at) >= window }

func (b *Binds) expire(node string, now time.Time) []placement {
	window := b.nodes[node]
	n := 0
	for n < len(window) && b.expired(window[n].at, now, b.longest) {
		delete(b.pods, window[n].pod)
		n++
	}

	return window[n:]
}

func (b *Binds) keep(node string, window []placement) {
	if len(window) == 0 {
		delete(b.nodes, node)
		return
	}

	b.nodes[node] = window
}
