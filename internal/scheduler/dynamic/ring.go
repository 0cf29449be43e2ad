// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/series"
)

const (
	// ringBytes bounds what the latest answers of a profile take: a hundred attempts at 5,000 nodes.
	ringBytes = 8 << 20
	// fewestAttempts and mostAttempts bound how many attempts are kept.
	fewestAttempts, mostAttempts = 8, 256
	answerBytes                  = 16
)

// ring keeps the latest attempts. An attempt that is forgotten leaves its room to the next, so that noting answers
// allocates next to nothing once the ring is full.
type ring struct {
	mu       sync.Mutex
	attempts []*attempt // the oldest first; guarded by mu
}

// attempt is one attempt to place a pod.
type attempt struct {
	namespace, name string
	number          uint64
	at              time.Time
	use             nodeload.Amount
	basis           nodeload.Basis
	open            bool
	taken           *census
	node            string // that the pod went to; guarded by ring.mu
	undone          bool   // the pod went there and was taken off again; guarded by ring.mu
	// clear tells that no node can have been closed, so that Filter was not asked.
	clear atomic.Bool
	scale atomic.Pointer[nodeload.Scale]
	// answers by slot of the roster.
	answers []answer
	// closed is the number of nodes that were closed.
	closed atomic.Int32
}

// answer is what was found out about one node, in words that are written and read as a whole: Filter and Score write them
// from many goroutines while somebody may be reading.
type answer struct {
	filter atomic.Uint64
	score  atomic.Uint64
}

// next begins an attempt.
func (r *ring) next(pod *corev1.Pod, c *cycle, basis nodeload.Basis, now time.Time) *attempt {
	a := &attempt{
		namespace: pod.Namespace, name: pod.Name, number: c.number, at: now,
		use: c.use, basis: basis, open: c.open, taken: c.census,
	}
	size := len(c.roster)
	room := min(max(ringBytes/(answerBytes*max(size, 1)), fewestAttempts), mostAttempts)
	r.mu.Lock()
	defer r.mu.Unlock()
	if surplus := len(r.attempts) - room + 1; surplus > 0 {
		// Who should still hold the oldest writes into nothing that is read.
		a.answers, r.attempts[0].answers = r.attempts[0].answers, nil
		r.attempts = append(r.attempts[:0], r.attempts[surplus:]...)
	}
	a.answers = cleared(a.answers, size)
	r.attempts = append(r.attempts, a)
	return a
}

// cleared needs ring.mu, under which alone answers of others are read: it needs no atomic writes, which would cost more than
// all else that is done for a pod.
func cleared(answers []answer, size int) []answer {
	if cap(answers) < size {
		return make([]answer, size)
	}
	answers = answers[:size]
	clear(answers)
	return answers
}

// placed says where the pod went.
func (r *ring) placed(a *attempt, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.node, a.undone = node, false
}

// unplaced says that it went nowhere after all.
func (r *ring) unplaced(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.undone = true
}

// Flags of an answer. A word of 0 says that the node was not asked about.
const (
	wasAsked   = 1 << 63
	wasUnknown = 1 << 62
	wasClosed  = 1 << 61
	limitBits  = 1<<13 - 1
)

// filtered notes what Filter found.
func (a *attempt) filtered(e *entry, n *nodeload.Node, limit int, unknown bool) {
	slot := int(e.slot.Load())
	if uint(slot) >= uint(len(a.answers)) {
		return
	}
	word := uint64(wasAsked)
	if unknown {
		word |= wasUnknown
	}
	if limit != nodeload.Open {
		a.closed.Add(1)
		l := a.taken.Rules.Policy.Limits[limit]
		load := &n.Loads[l.Metric]
		word |= wasClosed | uint64(limit&limitBits)<<48 | fixed(float64(load.Value))<<32 | signed(float64(load.OnWay))<<16 |
			fixed(float64(a.taken.Counted(n, a.use, limit)))
	}
	a.answers[slot].filter.Store(word)
}

// scored notes what Score found, as scoreWord says it.
func (a *attempt) scored(slot int, word uint64) {
	if uint(slot) < uint(len(a.answers)) {
		a.answers[slot].score.Store(word)
	}
}

func scoreWord(p nodeload.CostParts) uint64 {
	word := uint64(wasAsked)
	if p.Unknown {
		word |= wasUnknown
	}
	return word | fixedCost(p.Cost)<<32 | fixed(float64(p.Load))<<16 | signed(float64(p.OnWay))
}

func (a *attempt) scaled(scale nodeload.Scale) { a.scale.Store(&scale) }

// fixed is a fraction in ten-thousandths, up to 6.5535.
func fixed(x float64) uint64 { return uint64(min(max(x*1e4+0.5, 0), 65535)) }

// signed is a fraction from -2 to 4.5535, which is below 0 where pods have ended.
func signed(x float64) uint64 { return fixed(x + signedFrom) }

const signedFrom = 2

func unsigned(word uint64) series.Ratio { return unfixed(word) - signedFrom }

func unfixed(word uint64) series.Ratio { return series.Ratio(word&0xffff) / 1e4 }

// Costs are kept in 30 bits of ten-millionths from 0 to 107, moved up by 1 as those of Pack and Risk have no sign either.
const costUnits, costBits = 1e7, 1<<30 - 1

func fixedCost(c nodeload.Cost) uint64 {
	return uint64(min(max(float64(c)*costUnits+0.5, 0), costBits))
}

func unfixedCost(word uint64) nodeload.Cost {
	return nodeload.Cost(float64(word>>32&costBits) / costUnits)
}
