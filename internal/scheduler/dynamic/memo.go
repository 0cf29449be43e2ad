// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
)

// maxMemos is the maximum number of pod kinds with a memo between two snapshots.
const maxMemos = 8

// memos cache the results of Score since the last snapshot for pods with equal usage, such as those of one workload.
// Placing a pod changes one node; the cached costs of the others are read from one array instead of many views. A
// memo ends with its snapshot, after a second, so changes by time alone need no invalidation.
type memos struct {
	mu       sync.Mutex
	snapshot *fleetSnapshot // guarded by mu
	// seenOnce are usages seen once: a cache for a pod without a similar one is useless. Guarded by mu.
	seenOnce []nodeload.Amount
	uses     []nodeload.Amount // guarded by mu
	// memos are the memos of uses, followed by reusable ones; guarded by mu.
	memos []memo
}

// memo is indexed by slot. Cycles of one profile are sequential, and within a cycle each node is evaluated by one
// goroutine, so it needs no lock.
type memo []cachedScore

// cachedScore is the result of Score for one state of a node.
type cachedScore struct {
	view   *view
	object *corev1.Node
	word   uint64
	cost   int64
}

// memoFor returns the memo of pods with the given usage; nil for the first one.
func (m *memos) memoFor(snapshot *fleetSnapshot, use nodeload.Amount) memo {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.snapshot != snapshot {
		m.snapshot = snapshot
		m.seenOnce = m.seenOnce[:0]
		m.uses = m.uses[:0]
	}

	if i := slices.Index(m.uses, use); i >= 0 {
		return m.memos[i]
	}

	// A usage gets a memo when it is seen for the second time.
	switch {
	case len(m.uses) == maxMemos:
		return nil
	case !slices.Contains(m.seenOnce, use):
		if len(m.seenOnce) == maxMemos {
			m.seenOnce = m.seenOnce[:0]
		}

		m.seenOnce = append(m.seenOnce, use)
		return nil
	}

	m.uses = append(m.uses, use)
	return m.blank(len(m.uses)-1, len(snapshot.roster))
}

// blank returns an empty memo; the caller holds mu.
func (m *memos) blank(i, nodes int) memo {
	if i == len(m.memos) {
		m.memos = append(m.memos, nil)
	}
	if cap(m.memos[i]) < nodes {
		m.memos[i] = make(memo, nodes)
	}

	m.memos[i] = m.memos[i][:nodes]
	clear(m.memos[i])
	return m.memos[i]
}

// find returns the cached result, or nil if there is none or the node has changed.
func (m memo) find(slot int, e *entry, object *corev1.Node) *cachedScore {
	if uint(slot) >= uint(len(m)) {
		return nil
	}

	w := &m[slot]
	if w.object != object || w.view != e.view.Load() {
		return nil
	}

	return w
}

func (m memo) keep(slot int, w cachedScore) {
	if uint(slot) < uint(len(m)) {
		m[slot] = w
	}
}
