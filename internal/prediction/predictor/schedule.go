// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math/bits"
	"slices"
	"time"

	"crane.io/crane/internal/component/backoff"
	"crane.io/crane/internal/metrics"
)

// Start reads due entries until ctx ends, then writes checkpoints and returns. It is called once.
func (p *Predictor) Start(ctx context.Context) error {
	checkpoint := p.config.Clock.Now().Add(p.config.Checkpoint)
	for ctx.Err() == nil {
		now := p.config.Clock.Now()
		if !now.Before(checkpoint) {
			checkpoint = now.Add(p.config.Checkpoint)
			p.workers.Go(func() { p.save(true) })
		}

		next := p.dispatch(ctx, now)
		if checkpoint.Before(next) {
			next = checkpoint
		}

		// Whatever comes first: the next due entry, a new request or a read that ended.
		timer := p.config.Clock.NewTimer(max(time.Millisecond, next.Sub(now)))
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C():
		}

		timer.Stop()
	}

	p.workers.Wait()
	p.save(false)
	return nil
}

// NeedLeaderElection returns true: only the leader reads and forecasts.
func (*Predictor) NeedLeaderElection() bool { return true }

// batch is one read: entries whose queries can be joined.
type batch struct {
	group  group
	phase  phase
	window metrics.Window
	plans  []*entry
	// namespace is the one that the batch is read for; for one of several the first of them.
	namespace string
}

// group identifies entries that can be read together.
type group struct {
	namespace, kind string
	resource        metrics.UsageKind
	// expression is a digest, because expressions are long and all due entries are compared at each dispatch; zero for a resource.
	expression expressionKey
	step       time.Duration
}

type expressionKey [16]byte

// expressionCandidates is the maximum number of expressions of one namespace and phase that one dispatch considers.
const expressionCandidates = 20

func (e *entry) group() group {
	q := e.plan.query
	if q.Resource == "" {
		return group{expression: e.plan.expression, step: e.plan.step}
	}

	return group{
		namespace: q.Target.Namespace,
		kind:      q.Target.Kind,
		resource:  q.Resource,
		step:      e.plan.step,
	}
}

func (b *batch) isExpression() bool { return b.group.resource == "" && b.phase != toLoad }

// scanInterval is the least time between two searches for due entries. Each read that ends starts the next ones, and a search of all entries for
// each read would take longer than the reads. It grows up to maxScanInterval if searches would take more than 1/scanShare of the time.
const (
	scanInterval    = 100 * time.Millisecond
	maxScanInterval = 500 * time.Millisecond
	scanShare       = 10
)

// dispatch starts due reads as far as workers are free and returns the latest time of the next check.
func (p *Predictor) dispatch(ctx context.Context, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()

	if now.Before(p.reads.resume) {
		return p.reads.resume
	}

	r := &p.reads
	interval := min(maxScanInterval, max(scanInterval, scanShare*r.scanTime))
	next := r.scanned.Add(interval)
	if elapsed := now.Sub(r.scanned); elapsed < 0 || elapsed >= interval {
		var due []*entry
		due, next = p.dueEntries(now)
		r.waiting = p.config.batches(due, now)
		r.scanned = now
		r.scanTime = p.config.Clock.Since(now)
	}

	for {
		i := r.nextBatch(r.waiting)
		if i < 0 {
			return next // a worker that becomes free wakes the scheduler
		}

		b := r.waiting[i]
		r.waiting = slices.Delete(r.waiting, i, i+1)

		b.plans = slices.DeleteFunc(b.plans, func(e *entry) bool { return e.running || p.requested.entries[e.plan.key] != e })
		if len(b.plans) > 0 {
			p.startBatch(ctx, b)
		}
	}
}

// dueEntries returns the entries to read now and the time at which the next one is due, Refresh from now at most.
func (p *Predictor) dueEntries(now time.Time) ([]*entry, time.Time) {
	next := now.Add(p.config.Refresh)
	var due []*entry
	for _, e := range p.requested.entries {
		switch {
		case e.running:
		case !e.due.After(now):
			due = append(due, e)
		case e.due.Before(next):
			next = e.due
		}
	}

	return due, next
}

// startBatch marks a batch as busy and reads it; mu is held.
func (p *Predictor) startBatch(ctx context.Context, b batch) {
	for _, e := range b.plans {
		e.running = true
	}

	p.reads.begin(b)
	p.workers.Go(func() {
		var err error
		switch b.phase {
		case toLoad:
			p.load(b.plans)
		default:
			err = p.read(ctx, b)
		}

		p.finishBatch(ctx, b, err)
	})
}

// finishBatch records the outcome of a batch.
func (p *Predictor) finishBatch(ctx context.Context, b batch, err error) {
	now := p.config.Clock.Now()
	isQueryError := err != nil && p.config.IsQueryError != nil && p.config.IsQueryError(err)

	if err != nil {
		for _, e := range b.plans {
			e.recordError(err)
		}
	}

	p.mu.Lock()
	isQueryError = isQueryError || err != nil && p.reads.isExpensive(b, now)
	p.reads.releaseWorker(b)

	for _, e := range b.plans {
		e.running = false
		p.config.reschedule(e, b.phase, err, isQueryError, now)
		e.failed = now

		if err == nil {
			e.failed = time.Time{}
		}
	}

	if err == nil && b.phase != toLoad {
		p.reads.answered = now
	}

	// A query that the source refuses counts as an answer: the source itself works.
	paused := p.reads.pauses
	if b.phase != toLoad && !errors.Is(ctx.Err(), context.Canceled) {
		if isQueryError {
			p.reads.recordSource(nil, now)
		} else {
			p.reads.recordSource(err, now)
		}
	}

	p.mu.Unlock()
	p.counts.add(b.phase, err)

	if err != nil && paused == 0 && ctx.Err() == nil {
		p.config.Log.Error(err, "reading samples, forecasts continue from the last ones", "query", b.plans[0].plan.query.String())
	}
	p.wakeScheduler()
}

// reschedule sets the next read of an entry; mu is held.
func (c *Config) reschedule(e *entry, was phase, err error, isQueryError bool, now time.Time) {
	switch {
	case isQueryError:
		e.failures++
		e.due = now.Add(backoff.Exponential{First: c.Refresh, Last: lastRetry}.After(e.failures))
	case err != nil && e.plan.query.Expression != "": // Others probe the source first.
		e.failures++
		e.due = now.Add(backoff.Exponential{First: 2 * firstPause, Last: lastPause}.After(e.failures))

	case err != nil:
		e.due = now // as soon as the source is queried again
	case was == toLoad:
		e.due = now
	default:
		e.failures = 0
		e.phase = live
		e.due = c.nextRefresh(e, now)
	}
}

// nextRefresh gives the entries of a group common times, so that they are read together, and spreads groups over the
// interval, so that the load on the source is even.
func (c *Config) nextRefresh(e *entry, now time.Time) time.Time {
	g := e.group()
	h := fnv.New64a()
	for _, part := range []string{g.namespace, g.kind, string(g.resource), string(g.expression[:])} {
		_, _ = h.Write([]byte(part + "\x00")) // never fails
	}

	every := max(c.Refresh, e.plan.step)
	offset := time.Duration(h.Sum64() % uint64(every))

	next := now.Truncate(every).Add(offset)
	for next.Before(now.Add(every / 2)) {
		next = next.Add(every)
	}

	return next
}

// batches joins due entries, live ones first; mu is held.
func (c *Config) batches(due []*entry, now time.Time) []batch {
	type joint struct {
		group group
		phase phase
		class int
	}

	type origin struct {
		namespace string
		phase     phase
	}

	byJoint := map[joint]*batch{}
	candidates := map[origin]int{}
	var loading batch
	for _, e := range due {
		if e.phase == toLoad {
			loading.plans = append(loading.plans, e)
			continue
		}

		isExpression := e.plan.query.Resource == ""
		from := origin{e.owner, e.phase}
		if isExpression && candidates[from] >= expressionCandidates {
			continue // one of the reads before it wakes the scheduler
		}

		w := c.window(e, now)
		if !w.Start.Before(w.End) {
			e.due = w.End.Add(e.plan.step + c.settle(e.plan.step)) // no new samples yet
			continue
		}

		points := int(w.End.Sub(w.Start) / w.Step)
		// Histories of very different lengths are not joined: much would be read twice.
		j := joint{group: e.group(), phase: e.phase, class: bits.Len(uint(points))}

		b := byJoint[j]
		if b == nil {
			if isExpression {
				candidates[from]++
			}

			b = &batch{group: j.group, phase: j.phase, window: w}
			byJoint[j] = b
		}

		if w.Start.Before(b.window.Start) {
			b.window.Start = w.Start
		}
		b.plans = append(b.plans, e)
	}

	var out []batch
	for part := range slices.Chunk(loading.plans, maxNames) {
		out = append(out, batch{plans: part})
	}

	for _, b := range byJoint {
		out = append(out, b.split()...)
	}

	for i := range out {
		out[i].namespace = out[i].plans[0].owner
	}

	slices.SortFunc(out, func(a, b batch) int {
		return cmp.Or(cmp.Compare(rank(a.phase), rank(b.phase)), cmp.Compare(a.group.namespace, b.group.namespace),
			slices.Compare(a.group.expression[:], b.group.expression[:]))
	})

	return out
}

// rank orders live entries first: their reads are cheap and keep existing forecasts fresh.
func rank(p phase) int {
	if p == live {
		return -1
	}

	return int(p)
}

// split bounds the names and samples of one read. Entries of one name stay together, so that it is read once.
func (b *batch) split() []batch {
	if b.isExpression() {
		return []batch{*b}
	}

	points := max(1, int(b.window.End.Sub(b.window.Start)/b.window.Step))
	maxBatchNames := min(maxNames, max(1, maxPoints/points))
	slices.SortFunc(b.plans, func(x, y *entry) int { return cmp.Compare(x.plan.query.Target.Name, y.plan.query.Target.Name) })

	var out []batch
	names := 0
	for i, e := range b.plans {
		fresh := i == 0 || b.plans[i-1].plan.query.Target.Name != e.plan.query.Target.Name
		if fresh {
			names++
		}

		// A part ends between names only.
		if len(out) == 0 || fresh && names > maxBatchNames {
			out = append(out, batch{group: b.group, phase: b.phase, window: b.window})
			names = 1
		}

		last := &out[len(out)-1]
		last.plans = append(last.plans, e)
	}

	return out
}

// window returns the range to read for an entry; mu is held.
func (c *Config) window(e *entry, now time.Time) metrics.Window {
	step := e.plan.step
	w := metrics.Window{End: now.Add(-c.settle(step)).UTC().Truncate(step), Step: step}
	w.Start = w.End.Add(-e.plan.history).Truncate(step)
	if e.read.After(w.Start) {
		w.Start = e.read
	}

	return w
}
