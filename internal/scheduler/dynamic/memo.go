// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
)

// mostMemos bounds how many kinds of pods have a memo between two looks at all nodes.
const mostMemos = 8

// memos are what Score found since the last look at all nodes, for pods that use the same, as those of one workload do.
// Placing a pod changes one node; what the others cost the next such pod is known, and reading it in one place is a fraction
// of the work of reading their loads in many. They end with the census, after a second, and with them what time alone changes.
type memos struct {
	mu    sync.Mutex
	taken *census // guarded by mu
	// once are the uses that came once: what is kept for a pod that has no like is of no use to anybody. Guarded by mu.
	once []nodeload.Amount
	uses []nodeload.Amount // guarded by mu
	// kept are those of uses, and after them what is left of former ones; guarded by mu.
	kept []memo
}

// memo is by slot of the roster. The cycles of one profile follow one another, and within a cycle each node is asked about by
// one goroutine: it needs no lock.
type memo []weighed

// weighed is what Score found of a node as it was then.
type weighed struct {
	view   *view
	object *corev1.Node
	word   uint64
	cost   int64
}

// of returns the memo of pods that use so much. The first pod of its kind has none.
func (m *memos) of(taken *census, use nodeload.Amount) memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken != taken {
		m.taken, m.once, m.uses = taken, m.once[:0], m.uses[:0]
	}
	if i := slices.Index(m.uses, use); i >= 0 {
		return m.kept[i]
	}
	switch {
	case len(m.uses) == mostMemos:
		return nil
	case !slices.Contains(m.once, use):
		if len(m.once) == mostMemos {
			m.once = m.once[:0]
		}
		m.once = append(m.once, use)
		return nil
	}
	m.uses = append(m.uses, use)
	return m.blank(len(m.uses)-1, len(taken.roster))
}

// blank needs mu.
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

// find returns what was found, or nil where nothing was or the node has changed since.
func (m memo) find(slot int, e *entry, object *corev1.Node) *weighed {
	if uint(slot) >= uint(len(m)) {
		return nil
	}
	w := &m[slot]
	if w.object != object || w.view != e.view.Load() {
		return nil
	}
	return w
}

func (m memo) keep(slot int, w weighed) {
	if uint(slot) < uint(len(m)) {
		m[slot] = w
	}
}
