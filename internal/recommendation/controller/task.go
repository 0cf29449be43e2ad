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
	"crane.io/crane/internal/kube/workload"
)

// task is one target and one recommender that is to look at it.
type task struct {
	id          identity
	recommender *configuredRecommender
	target      workload.Workload
	// existing is the Recommendation that there is, nil where there is none.
	existing *analysisv1alpha1.Recommendation
	// requested tells that somebody has lowered the run number of old: they want to see it evaluated.
	requested bool
}

// passSize is how many targets one pass takes on, whole namespaces at a time: what is held in memory of them is bounded,
// and between two passes other rules have their turn.
const passSize = 2000

// splitPass takes the tasks of the first namespaces, some size of them or the one namespace that has more.
func splitPass(pending []task, size int) (pass, left []task) {
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

// progress is how far the round of a rule is. It spares a leader from doing twice what needed no write; a new leader begins
// with what the annotations of Recommendations say.
type progress struct {
	rule       types.UID
	generation int64
	number     int32
	done       map[identity]bool
	failed     map[identity]failure
}

// failure is a target that could not be dealt with.
type failure struct {
	err   error
	tries int
	// retryAt is when it is tried again.
	retryAt time.Time
}

// exhausted tells that a target has been tried often enough: the round counts as done without it.
func (f failure) exhausted() bool { return f.tries >= maxTries }

// progressStore are the rounds that are under way, by rule.
type progressStore struct {
	mu     sync.Mutex
	byRule map[string]*progress
}

// get returns the progress of a round, and begins it where the rule or the number is another.
func (r *progressStore) get(rule *analysisv1alpha1.RecommendationRule, number int32) *progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byRule == nil {
		r.byRule = map[string]*progress{}
	}
	p := r.byRule[rule.Name]
	if p == nil || p.rule != rule.UID || p.generation != rule.Generation || p.number != number {
		p = &progress{rule: rule.UID, generation: rule.Generation, number: number, done: map[identity]bool{}, failed: map[identity]failure{}}
		r.byRule[rule.Name] = p
	}
	return p
}

// forget forgets the round of a rule.
func (r *progressStore) forget(rule string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byRule, rule)
}

// recordFailure notes one more failure of a target and spaces its tries.
func (p *progress) recordFailure(id identity, err error, now time.Time) {
	f := p.failed[id]
	wait := min(firstRetry<<min(f.tries, 16), lastRetry)
	p.failed[id] = failure{err: err, tries: f.tries + 1, retryAt: now.Add(wait)}
}

// recordSuccess notes that a target is dealt with.
func (p *progress) recordSuccess(id identity) {
	p.done[id] = true
	delete(p.failed, id)
}

// forgetFailures drops failures of targets that are no longer there: nobody waits for their next try.
func (p *progress) forgetFailures(gone func(identity) bool) {
	maps.DeleteFunc(p.failed, func(id identity, _ failure) bool { return gone(id) })
}

// isDue tells whether a target is to be looked at now.
func (p *progress) isDue(id identity, now time.Time) bool {
	f, failed := p.failed[id]
	return !p.done[id] && (!failed || !f.exhausted() && !f.retryAt.After(now))
}

// nextRetry returns how long until a target that failed is tried again; ok is false where none is.
func (p *progress) nextRetry(now time.Time) (wait time.Duration, ok bool) {
	for _, f := range p.failed {
		if f.exhausted() {
			continue
		}
		if w := max(f.retryAt.Sub(now), time.Second); !ok || w < wait {
			wait, ok = w, true
		}
	}
	return wait, ok
}

// errors are the failures in the order of their targets.
func (p *progress) errors() []error {
	ids := make([]identity, 0, len(p.failed))
	for id := range p.failed {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, identity.compare)
	out := make([]error, len(ids))
	for i, id := range ids {
		out[i] = p.failed[id].err
	}
	return out
}

// roundMark is the value of analysisv1alpha1.AnnotationEvaluatedRound.
func roundMark(generation int64, number int32) string {
	return fmt.Sprintf("%d.%d", generation, number)
}

// isEvaluatedIn tells whether a round has written all of a Recommendation. The annotation goes out with or after the status of
// an object that was there, and before that of a new one, whose conditions are then still empty.
func isEvaluatedIn(rec *analysisv1alpha1.Recommendation, generation int64, number int32) bool {
	return rec.Annotations[analysisv1alpha1.AnnotationEvaluatedRound] == roundMark(generation, number) && len(rec.Status.Conditions) > 0
}

// evaluationRequested tells whether somebody has lowered the run number of a Recommendation, or taken it away.
func evaluationRequested(rec *analysisv1alpha1.Recommendation) bool {
	_, mark, marked := strings.Cut(rec.Annotations[analysisv1alpha1.AnnotationEvaluatedRound], ".")
	written, err := strconv.ParseInt(mark, 10, 32)
	if !marked || err != nil {
		return false // Of gocrane, or of an earlier craned: the next round marks it.
	}
	number, err := strconv.ParseInt(rec.Annotations[analysisv1alpha1.AnnotationRunNumber], 10, 32)
	return err != nil || number < written
}
