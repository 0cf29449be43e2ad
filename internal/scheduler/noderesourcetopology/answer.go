// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"math"
	"math/bits"
	"reflect"
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/numa"
)

// maxRequests is the number of different requests whose answers are cached.
const maxRequests = 4

// noScore marks a node without assigned zones, until NormalizeScore.
const noScore = -1

// answer is the result of a request on one state of a node. It is valid for one generation of the NodeInfo, until the
// node's state in the store changes. The scheduler never uses a generation twice, so a trial that changed its NodeInfo does
// not match.
type answer struct {
	request    *request
	info       uintptr // see infoKey
	generation int64
	node       *nodeState
	version    uint64 // of node
	verdict    verdict
	score      int64
}

// infoKey identifies a NodeInfo without keeping it in memory. Another NodeInfo at the same address has another generation.
func infoKey(info fwk.NodeInfo) uintptr { return reflect.ValueOf(info).Pointer() }

// answerTable holds the last answer to one request for each NodeInfo, in an open-addressed hash table. It takes no locks,
// because Filter reads it for many nodes of each pod: concurrent writes may lose an answer, which is then computed again.
type answerTable struct {
	slots atomic.Pointer[[]atomic.Pointer[answer]]
}

// maxProbes bounds a search. Where all probed slots hold other nodes, the first is replaced.
const maxProbes = 8

// slot returns the slot of a NodeInfo, or else an empty one, or else one to replace; nil in a table without slots.
func (t *answerTable) slot(key uintptr) *atomic.Pointer[answer] {
	slots := t.slots.Load()
	if slots == nil {
		return nil
	}

	first := int((uint64(key) * 0x9E3779B97F4A7C15) >> 32) // Fibonacci hashing
	for i := range maxProbes {
		slot := &(*slots)[(first+i)&(len(*slots)-1)]
		if a := slot.Load(); a == nil || a.info == key {
			return slot
		}
	}

	return &(*slots)[first&(len(*slots)-1)]
}

// grow makes room for the answers of n nodes, a quarter of the slots or less. It drops the answers when it grows.
func (t *answerTable) grow(n int) {
	if slots := t.slots.Load(); slots == nil || len(*slots) < 4*n {
		slots := make([]atomic.Pointer[answer], 1<<bits.Len(uint(8*n)))
		t.slots.Store(&slots)
	}
}

// answer computes the result of r with an account of the node, nil without assigned zones.
func (n *nodeState) answer(account *numa.Node, info fwk.NodeInfo, r *request) answer {
	// The score stays unset until the pod fits: NormalizeScore replaces it by the mean.
	a := answer{
		request:    r,
		info:       infoKey(info),
		generation: info.GetGeneration(),
		score:      noScore,
	}

	var unassigned bool
	if a.verdict, unassigned = n.unassigned(); unassigned {
		return a
	}

	if a.verdict = n.fit(account, r); a.verdict == fits {
		a.score = scoreOf(account.Spread(r.on(n.topology)))
	}

	return a
}

// scoreOf returns 100 for one zone; for k zones between 100/(k+1) and 100/k, gocrane's value, more for near zones.
func scoreOf(zones int, closeness float64) int64 {
	if zones == 0 {
		return noScore
	}

	upper := float64(fwk.MaxScore) / float64(zones)
	lower := float64(fwk.MaxScore) / float64(zones+1)
	return int64(math.Round(lower + (upper-lower)*closeness))
}

// forgetAnswers invalidates the cached answers. The caller holds the write lock, so no answer of the earlier state gets the
// new version.
func (n *nodeState) forgetAnswers() { n.version.Add(1) }

// cached returns the answer to an interned request, or nil if it has to be computed. It takes no lock.
func (s *store) cached(info fwk.NodeInfo, r *request) *answer {
	key := infoKey(info)
	if slot := s.answers[r.slot].slot(key); slot != nil {
		if a := slot.Load(); a != nil && a.info == key {
			if a.request == r && a.generation == info.GetGeneration() && a.version == a.node.version.Load() {
				return a
			}

			return nil
		}
	}

	if s.state(info.Node().Name) == nil {
		return &answer{verdict: unknown, score: noScore}
	}

	return nil
}

// compute returns the answer to an interned request in view v, and caches it unless v is a trial.
func (s *store) compute(v view, r *request) *answer {
	// withAccount holds a lock while the answer is computed, so that its version is that of the account that it read.
	a := &answer{}
	table := &s.answers[r.slot]
	s.withAccount(v, func(n *nodeState, account *numa.Node) {
		*a = n.answer(account, v.info, r)
		if n != nil && !v.trial() {
			a.node = n
			a.version = n.version.Load()
			table.grow(s.topologies)
		}
	})

	if a.node != nil {
		table.slot(a.info).Store(a)
	}

	return a
}

// singleZoneOnly reports whether r gets one zone on every node that assigns zones.
func (s *store) singleZoneOnly(r *request) bool {
	if r.singleZone != nil {
		return *r.singleZone
	}

	return s.spreading.Load() == 0
}

// recentRequests returns one pointer for equal requests, so that pods of one workload share answers. A new request
// replaces the oldest one and uses its slot.
type recentRequests struct {
	mu     sync.Mutex
	recent [maxRequests]*request
	next   int
}

func (q *recentRequests) intern(r *request) *request {
	q.mu.Lock()
	defer q.mu.Unlock()

	for _, earlier := range q.recent {
		if earlier.equal(r) {
			return earlier
		}
	}

	r.slot = q.next
	q.recent[q.next] = r
	q.next = (q.next + 1) % maxRequests

	return r
}
