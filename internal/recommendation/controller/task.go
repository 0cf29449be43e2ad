// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/backoff"
	"crane.io/crane/internal/kube/workload"
)

// task is the evaluation of one target by one recommender.
type task struct {
	id          identity
	recommender *configuredRecommender
	target      workload.Workload
	// existing is the current Recommendation; nil if there is none.
	existing *analysisv1alpha1.Recommendation
	// requested marks tasks whose evaluation a user requested by lowering the run number of existing.
	requested bool
}

// batchSize is the number of targets of one batch. It bounds memory and lets other rules run between two batches.
const batchSize = 2000

// splitBatch sorts tasks by namespace and returns those of the first namespaces, at most size of them or all of one larger
// namespace, and the others.
func splitBatch(pending []task, size int) (first, remaining []task) {
	slices.SortStableFunc(pending, func(a, b task) int { return cmp.Compare(a.id.namespace, b.id.namespace) })
	end := 0
	for end < len(pending) {
		next := end
		for next < len(pending) && pending[next].id.namespace == pending[end].id.namespace {
			next++
		}

		if end > 0 && next > size {
			break
		}

		end = next
	}

	return pending[:end], pending[end:]
}

// progress tracks the run of a rule, so that targets that needed no write are not evaluated twice. After a restart the
// annotations of the Recommendations replace it.
type progress struct {
	rule       types.UID
	generation int64
	number     int32
	done       map[identity]bool
	failed     map[identity]failure
	// selectors is the transient failure of selectors; selectorsSince is when it began.
	selectors      failure
	selectorsSince time.Time
}

// failure is a target that could not be read or written.
type failure struct {
	err     error
	tries   int
	retryAt time.Time
}

// maxTries is the number of attempts for a target that cannot be read or written. After that the run ends without it, so
// that the other targets are evaluated again.
const maxTries = 5

func (f failure) exhausted() bool { return f.tries >= maxTries }

// maxSelectorTries is the number of attempts for selectors that fail with transient errors, about 50 minutes. A list costs little, and what was
// evaluated is not evaluated again.
const maxSelectorTries = 16

// retryDelay returns the delay after a failure of a target or a selector that follows a number of tries.
func retryDelay(tries int) time.Duration {
	return backoff.Exponential{First: firstRetry, Last: lastRetry}.After(tries + 1)
}

// progressStore holds the progress of unfinished runs by the name of their rule.
type progressStore struct {
	mu     sync.Mutex
	byRule map[string]*progress
}

// get returns the progress of a run. It is empty for a new rule, generation or run number.
func (r *progressStore) get(rule *analysisv1alpha1.RecommendationRule, number int32) *progress {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.byRule == nil {
		r.byRule = map[string]*progress{}
	}

	p := r.byRule[rule.Name]
	if p == nil || p.rule != rule.UID || p.generation != rule.Generation || p.number != number {
		p = &progress{
			rule:       rule.UID,
			generation: rule.Generation,
			number:     number,
			done:       map[identity]bool{},
			failed:     map[identity]failure{},
		}

		r.byRule[rule.Name] = p
	}

	return p
}

// forget drops the progress of a rule.
func (r *progressStore) forget(rule string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.byRule, rule)
}

// taskResult is the result of one task; err is nil if it succeeded.
type taskResult struct {
	id  identity
	err error
}

// record adds the results of a batch and schedules the retries of failed tasks, with exponential backoff.
func (p *progress) record(results []taskResult, now time.Time) {
	for _, r := range results {
		if r.err == nil {
			p.done[r.id] = true
			delete(p.failed, r.id)
			continue
		}

		tries := p.failed[r.id].tries
		p.failed[r.id] = failure{err: r.err, tries: tries + 1, retryAt: now.Add(retryDelay(tries))}
	}
}

// recordSelectors adds the failures of selectors, and returns the time until they are resolved again; ok is false if they are not. A run
// waits for selectors that fail with transient errors, but not for longer than limit, the interval of the rule; 0 for no limit.
func (p *progress) recordSelectors(failures []error, limit time.Duration, now time.Time) (wait time.Duration, ok bool) {
	i := slices.IndexFunc(failures, isTransient)
	if i < 0 {
		p.selectors = failure{}
		return 0, false
	}

	if p.selectors.tries == 0 {
		p.selectorsSince = now
	}
	if !now.Before(p.selectors.retryAt) { // Retries of targets resolve the selectors in between.
		p.selectors = failure{err: failures[i], tries: p.selectors.tries + 1, retryAt: now.Add(retryDelay(p.selectors.tries))}
	}

	if p.selectors.tries >= maxSelectorTries || limit > 0 && p.selectors.retryAt.Sub(p.selectorsSince) >= limit {
		return 0, false
	}

	return max(p.selectors.retryAt.Sub(now), time.Second), true
}

// forgetFailures drops the failures of deleted targets, which would delay the end of the run.
func (p *progress) forgetFailures(isGone func(identity) bool) {
	maps.DeleteFunc(p.failed, func(id identity, _ failure) bool { return isGone(id) })
}

// isDue reports whether a task has still to be done in this run and may be tried now.
func (p *progress) isDue(id identity, now time.Time) bool {
	f, failed := p.failed[id]
	return !p.done[id] && (!failed || !f.exhausted() && !f.retryAt.After(now))
}

// nextRetry returns the time until the next retry of a failed task, at least one second; ok is false if there is none.
func (p *progress) nextRetry(now time.Time) (wait time.Duration, ok bool) {
	for _, f := range p.failed {
		if f.exhausted() {
			continue
		}

		if w := max(f.retryAt.Sub(now), time.Second); !ok || w < wait {
			wait = w
			ok = true
		}
	}

	return wait, ok
}

// failedCondition returns a False Ready condition that lists the failed targets.
func (p *progress) failedCondition(reason string) condition {
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(p.failed), identity.compare) {
		errs = append(errs, p.failed[id].err)
	}

	return notReady(reason, fmt.Sprintf("%d of %d targets: %s", len(errs), len(errs)+len(p.done), joinErrors(errs)))
}

// runMark returns the value of analysisv1alpha1.AnnotationEvaluatedRound.
func runMark(generation int64, number int32) string {
	return fmt.Sprintf("%d.%d", generation, number)
}

// isEvaluatedIn reports whether a run has written a Recommendation completely. The annotation is written with or after the
// status of an existing object, and before the status of a new one, which then has no conditions yet.
func isEvaluatedIn(rec *analysisv1alpha1.Recommendation, generation int64, number int32) bool {
	return rec.Annotations[analysisv1alpha1.AnnotationEvaluatedRound] == runMark(generation, number) && len(rec.Status.Conditions) > 0
}

// evaluationRequested reports whether a user lowered or removed the run number of a Recommendation.
func evaluationRequested(rec *analysisv1alpha1.Recommendation) bool {
	_, mark, marked := strings.Cut(rec.Annotations[analysisv1alpha1.AnnotationEvaluatedRound], ".")
	written, err := strconv.ParseInt(mark, 10, 32)
	if !marked || err != nil {
		return false // Written by gocrane or an earlier craned: the next run marks it.
	}

	number, err := strconv.ParseInt(rec.Annotations[analysisv1alpha1.AnnotationRunNumber], 10, 32)
	return err != nil || number < written
}
