// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"math"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/numa"
)

// maxRequests is the number of different requests whose answers are cached.
const maxRequests = 4

// noScore marks a node without assigned zones, until NormalizeScore.
const noScore = -1

// answer is the result of a request on one state of a node. It is valid for the same generation of its NodeInfo, until the
// node's state in the store changes. The scheduler never uses a generation twice, so a trial that changed its NodeInfo does
// not match.
type answer struct {
	request    *request
	generation int64
	verdict    verdict
	score      int64
}

// answer computes the result of r with an account of the node, nil without assigned zones.
func (n *nodeState) answer(account *numa.Node, info fwk.NodeInfo, r *request) answer {
	a := answer{request: r, generation: info.GetGeneration(), score: noScore}
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
	most, least := float64(fwk.MaxScore)/float64(zones), float64(fwk.MaxScore)/float64(zones+1)
	return int64(math.Round(least + (most-least)*closeness))
}

// forgetAnswers invalidates the cached answers. The caller holds the write lock, so no answer of the earlier state is
// stored afterwards.
func (n *nodeState) forgetAnswers() {
	for i := range n.answers {
		n.answers[i].Store(nil)
	}
}

// cached returns the answer to an interned request, or nil if it has to be computed. It takes no lock.
func (s *store) cached(info fwk.NodeInfo, r *request) *answer {
	n := s.state(info.Node().Name)
	if n == nil {
		return &answer{verdict: unknown, score: noScore}
	}
	if a := n.answers[r.slot].Load(); a != nil && a.request == r && a.generation == info.GetGeneration() {
		return a
	}
	return nil
}

// compute returns the answer to an interned request in view v, and caches it unless v is a trial.
func (s *store) compute(v view, r *request) *answer {
	a := &answer{}
	s.withAccount(v, func(n *nodeState, account *numa.Node) {
		*a = n.answer(account, v.info, r)
		if n != nil && !v.trial() {
			n.answers[r.slot].Store(a)
		}
	})
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
	for _, known := range q.recent {
		if known.equal(r) {
			return known
		}
	}
	r.slot = q.next
	q.recent[q.next] = r
	q.next = (q.next + 1) % maxRequests
	return r
}
