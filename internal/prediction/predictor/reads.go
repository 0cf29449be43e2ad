// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"cmp"
	"slices"
	"time"

	"crane.io/crane/internal/component/backoff"
)

// reads has the running reads and what the source answered. It decides which batch is read next. The lock of the Predictor guards it.
type reads struct {
	workers int
	refresh time.Duration

	// waiting are the batches that were found at scanned and not started yet.
	waiting []batch
	scanned time.Time
	// scanTime is how long the last search took.
	scanTime time.Duration

	// served holds, by namespace, when a read of it was last started, as a count of starts. It has an entry for each namespace in budgets
	// at most.
	served map[string]int64
	starts int64
	// expressions holds the number of running reads of expressions by namespace.
	expressions map[string]int
	// answered is the last time at which the source answered a query.
	answered time.Time
	busy     int // number of busy workers
	// historyReads is the number of those that read whole histories of workloads and nodes, histories those by namespace.
	historyReads int
	histories    map[string]int
	// pauses counts consecutive failures of the source. The source is not queried before resume, and then with one
	// query.
	pauses int
	resume time.Time
	// failure is the first error of the row.
	failure error
}

// nextBatch returns the index of the next batch to start, -1 for none. Among batches of one rank the namespace that was served
// least recently is next, so that a namespace with many requests delays the others by one read.
func (r *reads) nextBatch(all []batch) int {
	best := -1
	for i := range all {
		if !r.canStart(&all[i]) {
			continue
		}

		if best >= 0 && cmp.Or(cmp.Compare(rank(all[i].phase), rank(all[best].phase)),
			cmp.Compare(r.served[all[i].namespace], r.served[all[best].namespace])) >= 0 {
			continue
		}

		best = i
	}

	return best
}

// canStart reports whether a worker may start a batch. While the source fails, a single worker probes it. Expressions, which may be expensive,
// use at most half of the workers; one worker is left for new samples of workloads, and new samples leave one for first histories. Expressions and
// histories of one namespace use all but one of those that they may use.
func (r *reads) canStart(b *batch) bool {
	free := r.workers - r.busy
	slow := 0
	for _, n := range r.expressions {
		slow += n
	}

	if r.pauses > 0 && b.phase != toLoad {
		free = min(free, 1-(r.busy-slow))
	}

	isExpression := b.isExpression()
	switch {
	case r.isShareUsed(b):
		return false
	case isExpression && (slow >= r.expressionWorkers() || r.pauses > 0 && slow > 0):
		return false
	case !isExpression && b.phase == toFetch && r.workers > 1 && r.historyReads+slow >= r.workers-1:
		return false
	case (isExpression || b.phase == live) && r.workers > 1 && r.busy-r.historyReads >= r.workers-1:
		return false
	}

	return free > 0
}

// expressionWorkers returns the number of workers that expressions may use.
func (r *reads) expressionWorkers() int { return max(1, r.workers/2) }

// isShareUsed reports whether the namespace of a batch uses all workers that one namespace may use for such batches.
func (r *reads) isShareUsed(b *batch) bool {
	switch {
	case b.namespace == "":
		return false
	case b.isExpression():
		return r.expressions[b.namespace] >= max(1, r.expressionWorkers()-1)
	case b.phase == toFetch:
		return r.histories[b.namespace] >= max(1, r.workers-2)
	}

	return false
}

// begin takes a worker for a batch.
func (r *reads) begin(b batch) {
	r.busy++
	if b.phase == toFetch && !b.isExpression() {
		r.historyReads++
		r.histories[b.namespace]++
	}

	r.starts++

	if b.namespace != "" {
		r.served[b.namespace] = r.starts
	}
	if b.isExpression() {
		r.expressions[b.namespace]++
	}
}

// releaseWorker makes the worker of a batch available.
func (r *reads) releaseWorker(b batch) {
	r.busy--
	switch {
	case !b.isExpression() && b.phase == toFetch:
		r.historyReads--
		r.histories[b.namespace]--

		if r.histories[b.namespace] == 0 {
			delete(r.histories, b.namespace)
		}

	case b.isExpression():
		r.expressions[b.namespace]--

		if r.expressions[b.namespace] == 0 {
			delete(r.expressions, b.namespace)
		}
	}
}

// recordSource pauses reads after a failure of the source, and resumes them after an answer.
func (r *reads) recordSource(err error, now time.Time) {
	if err == nil {
		r.pauses = 0
		r.resume = time.Time{}
		r.failure = nil

		return
	}

	if r.pauses == 0 {
		r.failure = err
	}

	r.pauses++
	r.resume = now.Add(backoff.Exponential{First: firstPause, Last: lastPause}.After(r.pauses))
}

// isExpensive reports whether a failure is that of an expression and not of the source, since the source has answered another query lately, or
// after the expression last failed. Without it, expressions that overload the source would pause all reads again and again.
func (r *reads) isExpensive(b batch, now time.Time) bool {
	if !b.isExpression() || r.answered.IsZero() {
		return false
	}

	return now.Sub(r.answered) <= r.refresh || slices.ContainsFunc(b.plans, func(e *entry) bool {
		return !e.failed.IsZero() && r.answered.After(e.failed)
	})
}
