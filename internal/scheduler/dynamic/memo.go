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
	mu    sync.Mutex
	taken *fleetSnapshot // guarded by mu
	// once are usages seen once: a cache for a pod without a similar one is useless. Guarded by mu.
	once []nodeload.Amount
	uses []nodeload.Amount // guarded by mu
	// kept are the memos of uses, followed by reusable ones; guarded by mu.
	kept []memo
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

// of returns the memo of pods with the given usage; nil for the first one.
func (m *memos) of(taken *fleetSnapshot, use nodeload.Amount) memo {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.taken != taken {
		m.taken = taken
		m.once = m.once[:0]
		m.uses = m.uses[:0]
	}

	if i := slices.Index(m.uses, use); i >= 0 {
		return m.kept[i]
	}

	switch {
	case len(m.uses) == maxMemos:
		return nil
	case !slices.Contains(m.once, use):
		if len(m.once) == maxMemos {
			m.once = m.once[:0]
		}

		m.once = append(m.once, use)
		return nil
	}

	m.uses = append(m.uses, use)
	return m.blank(len(m.uses)-1, len(taken.roster))
}

// blank returns an empty memo; the caller holds mu.
func (m *memos) blank(i, nodes int) memo {
	if i == len(m.kept) {
		m.kept = append(m.kept, nil)
	}
	if cap(m.kept[i]) < nodes {
		m.kept[i] = make(memo, nodes)
	}

	m.kept[i] = m.kept[i][:nodes]
	clear(m.kept[i])
	return m.kept[i]
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
