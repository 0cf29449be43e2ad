// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/heap"
	"time"
)

// event is an action at a time; events of one time run in the order in which they were added.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// events is a queue in virtual time.
type events struct {
	heap eventHeap
	seq  uint64
}

func (e *events) add(at time.Duration, do func()) {
	e.seq++
	heap.Push(&e.heap, event{at: at, seq: e.seq, do: do})
}

// next removes and returns the first event, if it is not after limit.
func (e *events) next(limit time.Duration) (event, bool) {
	if len(e.heap) == 0 || e.heap[0].at > limit {
		return event{}, false
	}
	first, ok := heap.Pop(&e.heap).(event)
	return first, ok
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) {
	if e, ok := x.(event); ok {
		*h = append(*h, e)
	}
}

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	n := len(*h) - 1
	last := (*h)[n]
	(*h)[n] = event{}
	*h = (*h)[:n]
	return last
}
