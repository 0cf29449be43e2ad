// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

const (
	// ringBytes bounds the memory of the recorded attempts of a profile: a hundred attempts at 5,000 nodes.
	ringBytes = 8 << 20
	// minAttempts and maxAttempts bound the number of recorded attempts.
	minAttempts, maxAttempts = 8, 256
	answerBytes              = 16
)

// attemptRing keeps the latest attempts. It reuses the memory of dropped attempts, so that recording allocates almost
// nothing once the ring is full.
type attemptRing struct {
	mu       sync.Mutex
	attempts []*attempt // the oldest first; guarded by mu
}

// attempt is one attempt to place a pod.
type attempt struct {
	namespace, name string
	number          uint64
	startedAt       time.Time
	use             nodeload.Amount
	basis           nodeload.Basis
	exempt          bool
	snapshot        *fleetSnapshot
	node            string // that the pod went to; guarded by attemptRing.mu
	undone          bool   // the pod went there and was taken off again; guarded by attemptRing.mu
	// clear means that no node can have been closed, so that Filter was skipped.
	clear atomic.Bool
	scale atomic.Pointer[nodeload.Scale]
	// answers are indexed by slot.
	answers []answer
	// closed is the number of closed nodes.
	closed atomic.Int32
}

// answer is the result for one node, in words that are written and read atomically: Filter and Score write them from
// many goroutines while they may be read.
type answer struct {
	filter atomic.Uint64
	score  atomic.Uint64
}

// next starts an attempt.
func (r *attemptRing) next(pod *corev1.Pod, c *cycle, basis nodeload.Basis, now time.Time) *attempt {
	a := &attempt{
		namespace: pod.Namespace,
		name:      pod.Name,
		number:    c.number,
		startedAt: now,
		use:       c.use,
		basis:     basis,
		exempt:    c.exempt,
		snapshot:  c.fleetSnapshot,
	}

	size := len(c.roster)
	capacity := min(max(ringBytes/(answerBytes*max(size, 1)), minAttempts), maxAttempts)
	r.mu.Lock()
	defer r.mu.Unlock()

	if excess := len(r.attempts) - capacity + 1; excess > 0 {
		// A goroutine that still holds the oldest attempt must not write into reused memory.
		a.answers = r.attempts[0].answers
		r.attempts[0].answers = nil
		r.attempts = append(r.attempts[:0], r.attempts[excess:]...)
	}

	a.answers = clearAnswers(a.answers, size)
	r.attempts = append(r.attempts, a)
	return a
}

// clearAnswers clears reused answers; the caller holds attemptRing.mu, under which alone answers are read, so it
// needs no atomic writes, which would dominate the cost per pod.
func clearAnswers(answers []answer, size int) []answer {
	if cap(answers) < size {
		return make([]answer, size)
	}

	answers = answers[:size]
	clear(answers)
	return answers
}

// placed records the selected node.
func (r *attemptRing) placed(a *attempt, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	a.node = node
	a.undone = false
}

// unplaced records that the placement was undone.
func (r *attemptRing) unplaced(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()

	a.undone = true
}

// Flags of an answer. A word of 0 means that the node was not evaluated.
const (
	wasAsked   = 1 << 63
	wasUnknown = 1 << 62
	wasClosed  = 1 << 61
	limitBits  = 1<<13 - 1
)

// filtered records the result of Filter.
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
		l := a.snapshot.Rules.Policy.Limits[limit]
		load := &n.Loads[l.Metric]
		word |= wasClosed | uint64(limit&limitBits)<<48 | fixed(float64(load.Value))<<32 | signed(float64(load.OnWay))<<16 |
			fixed(float64(a.snapshot.Counted(n, a.use, limit)))
	}

	a.answers[slot].filter.Store(word)
}

// scored records the result of Score, in the format of scoreWord.
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

// fixed encodes a fraction in ten-thousandths, up to 6.5535.
func fixed(x float64) uint64 { return uint64(min(max(x*1e4+0.5, 0), 65535)) }

// signed encodes a fraction from -2 to 4.5535, which is negative if pods have ended.
func signed(x float64) uint64 { return fixed(x + signedFrom) }

const signedFrom = 2

func unsigned(word uint64) units.Ratio { return unfixed(word) - signedFrom }

func unfixed(word uint64) units.Ratio { return units.Ratio(word&0xffff) / 1e4 }

// Costs are kept in 30 bits of ten-millionths from 0 to 107, moved up by 1 as those of Pack and Risk have no sign either.
// Untyped constants, because costs are scaled as floats and masked as words.
const (
	costUnits = 1e7
	costBits  = 1<<30 - 1
)

func fixedCost(c nodeload.Cost) uint64 {
	return uint64(min(max(float64(c)*costUnits+0.5, 0), costBits))
}

func unfixedCost(word uint64) nodeload.Cost {
	return nodeload.Cost(float64(word>>32&costBits) / costUnits)
}
