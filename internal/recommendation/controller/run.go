// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// batch is a part of a run. A run evaluates all targets of a rule; it has one batch, or several with batches of other rules in between if there
// are many targets. A batch is read-only once planned.
type batch struct {
	rule *analysisv1alpha1.RecommendationRule
	now  time.Time
	// number is that of the run; a run that is retried keeps its number.
	number   int32
	schedule schedule
	// catchUp marks a batch of a rule that is not due. It evaluates the targets that were too young in the last run and
	// those whose evaluation was requested, and keeps the number and the time of that run.
	catchUp bool
	// upToDate marks a rule that is not due and has no young targets left; wait is the time until it is due.
	upToDate bool
	wait     time.Duration
	// recommenders are in evaluation order.
	recommenders []*configuredRecommender
	// problems are the invalid parts of a rule whose other parts are evaluated.
	problems []error
}

// planBatch returns the batch that a rule needs now. Its errors are a batchError.
func planBatch(rule *analysisv1alpha1.RecommendationRule, settings Settings, now time.Time) (batch, error) {
	b := batch{rule: rule, now: now, number: rule.Status.RunNumber + 1}
	var err error
	if b.schedule, err = parseSchedule(rule); err != nil {
		return b, batchError{reasonInvalidInterval, false, err}
	}

	// A rule that is not due is evaluated for new targets and requests alone.
	if wait, never := b.schedule.wait(rule, now); never || wait > 0 {
		b.catchUp = true
		b.number = rule.Status.RunNumber
		b.wait = wait
		b.upToDate = !hasYoungTargets(rule)
	}

	named := map[string]bool{}
	for i, spec := range rule.Spec.Recommenders {
		configured, err := settings.configure(spec)
		if err == nil && named[spec.Name] {
			err = fmt.Errorf("recommender %q is listed twice; the first entry is used", spec.Name)
		}

		if err != nil {
			b.problems = append(b.problems, fmt.Errorf("spec.recommenders[%d]: %w", i, err))
			continue
		}

		named[spec.Name] = true
		b.recommenders = append(b.recommenders, &configured)
	}

	slices.SortStableFunc(b.recommenders, func(x, y *configuredRecommender) int {
		return cmp.Compare(x.order, y.order)
	})

	if len(b.recommenders) == 0 && len(b.problems) > 0 {
		return b, batchError{reason: reasonInvalidConfig, error: errors.New(joinErrors(b.problems))}
	}

	return b, nil
}

// batchWork are the tasks of a batch.
type batchWork struct {
	// tasks belong to this batch, remaining to the next ones of the run.
	tasks, remaining []task
	stats            runStats
}

// tasks returns what the run has still to evaluate.
func (b batch) tasks(targets selection, found recommendationSet, progress *progress) batchWork {
	var work batchWork
	evaluated := map[identity]bool{}
	for _, w := range targets.targets {
		supported := false
		for _, recommender := range b.recommenders {
			if !recommender.supports(w.Ref) {
				continue
			}

			supported = true
			t := task{id: identityOf(w.Ref, recommender.name), recommender: recommender, target: w}

			t.existing = found.byIdentity[t.id]
			t.requested = t.existing != nil && evaluationRequested(t.existing)
			evaluated[t.id] = work.stats.count(b, recommender, w)
			if evaluated[t.id] && b.isPending(t, progress) {
				work.tasks = append(work.tasks, t)
			}
		}

		if !supported {
			work.stats.unsupported++
		}
	}

	progress.forgetFailures(func(id identity) bool { return !evaluated[id] })
	return work
}

// isPending reports whether a task belongs to the run and has still to be done.
func (b batch) isPending(t task, progress *progress) bool {
	_, failed := progress.failed[t.id]
	switch {
	case !progress.isDue(t.id, b.now):
		return false
	case failed: // The failure is in its status, so it looks evaluated.
		return true
	case b.upToDate:
		return t.requested
	case b.catchUp:
		return t.requested || t.existing == nil && t.target.Created.Add(t.recommender.cooldown).After(b.rule.Status.LastUpdateTime.Time)
	}

	return t.requested || t.existing == nil || !isEvaluatedIn(t.existing, b.rule.Generation, b.number)
}

// split keeps the tasks of the first namespaces, at most size of them or all of one larger namespace, for this batch.
func (b batch) split(work batchWork, size int) batchWork {
	work.tasks, work.remaining = splitBatch(work.tasks, size)
	return work
}

// decide returns a proposal for each task. It changes nothing.
func (b batch) decide(tasks []task, targets selection, data *runData) []proposal {
	var out []proposal
	for _, recommender := range b.recommenders { // In order: some recommenders use the decisions of earlier ones.
		for _, t := range tasks {
			if t.recommender == recommender {
				out = append(out, t.propose(data, targets.errorOf(t)))
			}
		}
	}

	return out
}

// obsolete returns the Recommendations of targets that the rule no longer selects, and duplicates. It returns none before
// the last batch of a run, and while a selector could not be resolved, since missing targets may still exist.
func (b batch) obsolete(work batchWork, targets selection, found recommendationSet) []*analysisv1alpha1.Recommendation {
	if len(targets.failures) > 0 || len(work.remaining) > 0 || b.upToDate {
		return nil
	}

	invalid := map[string]bool{} // Recommenders that do not run keep their Recommendations.
	for _, recommender := range b.rule.Spec.Recommenders {
		invalid[recommender.Name] = true
	}

	selected := map[identity]bool{}
	for _, recommender := range b.recommenders {
		delete(invalid, recommender.name)
		for _, w := range targets.targets {
			if recommender.supports(w.Ref) && recommender.accepts(w) {
				selected[identityOf(w.Ref, recommender.name)] = true
			}
		}
	}

	out := found.duplicates
	for id, rec := range found.byIdentity {
		if !selected[id] && !invalid[id.recommender] {
			out = append(out, rec)
		}
	}

	return out
}

// complete returns the outcome of the last batch of a run.
func (b batch) complete(stats runStats, targets selection, progress *progress, now time.Time) outcome {
	if b.upToDate {
		return outcome{wait: b.wait} // The condition stays that of the run.
	}

	var end outcome
	if b.catchUp {
		end.wait = b.schedule.next(b.rule.Status.LastUpdateTime.Time, now)
	} else {
		end = outcome{
			completed: now,
			number:    b.number,
			targets:   int32(stats.evaluated),
			wait:      b.schedule.next(now, now),
		}
	}

	switch {
	case len(progress.failed) > 0:
		end.condition = progress.failedCondition(reasonTargetsFailed)

	case len(targets.failures) > 0:
		end.condition = notReady(reasonSelectorFailed, joinErrors(targets.failures))
		if b.schedule.once {
			end.wait = retryIncomplete
		}

	case len(b.problems) > 0:
		end.condition = notReady(reasonInvalidConfig, joinErrors(b.problems))

	case len(targets.missing) > 0:
		end.condition = notReady(reasonNamespaceNotFound, fmt.Sprintf("spec.namespaceSelector.matchNames: %s not found. %s Correct the names, or create the namespaces.",
			namespaceList(targets.missing), stats.String()))

	case stats.young > 0:
		end.condition = condition{
			conditionType: analysisv1alpha1.ConditionReady,
			status:        true,
			reason:        reasonTargetsYoung,
			message:       stats.String(),
		}

		if wait := max(stats.oldEnoughAt.Sub(now), time.Second); end.wait == 0 || wait < end.wait {
			end.wait = wait
		}

	case len(targets.targets) == 0:
		end.condition = condition{
			conditionType: analysisv1alpha1.ConditionReady,
			status:        true,
			reason:        reasonNoTargets,
			message:       "No object matches " + strings.Join(targets.empty, " or ") + ". Check the kinds, names and labels of the selectors.",
		}

	default:
		end.condition = condition{
			conditionType: analysisv1alpha1.ConditionReady,
			status:        true,
			reason:        reasonRoundCompleted,
			message:       stats.String(),
		}
	}

	return end
}

// namespaceList returns the names with their noun.
func namespaceList(names []string) string {
	return count(len(names), "namespace", "namespaces") + " (" + strings.Join(names, ", ") + ")"
}

// count returns a number and its noun.
func count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}

	return strconv.Itoa(n) + " " + plural
}

// runStats counts the targets of a run, once for each recommender that supports them.
type runStats struct {
	evaluated int
	// notAccepted targets are excluded by acceptedResources, unsupported ones are of kinds that no recommender of the rule
	// supports.
	notAccepted, unsupported int
	// young targets are younger than the cooldown; the last of them is old enough at oldEnoughAt.
	young       int
	oldEnoughAt time.Time
	cooldown    time.Duration
}

// count adds a target and reports whether the run evaluates it.
func (s *runStats) count(b batch, recommender *configuredRecommender, w workload.Workload) bool {
	switch oldEnoughAt := w.Created.Add(recommender.cooldown); {
	case !recommender.accepts(w):
		s.notAccepted++
	case b.catchUp && w.Created.After(b.rule.Status.LastUpdateTime.Time):

		// It belongs to the next run; otherwise new targets could keep a run from ending.
	case b.now.Before(oldEnoughAt):
		s.young++
		s.cooldown = recommender.cooldown
		if oldEnoughAt.After(s.oldEnoughAt) {
			s.oldEnoughAt = oldEnoughAt
		}

	default:
		s.evaluated++
		return true
	}

	return false
}

// String returns the message of the Ready condition.
func (s *runStats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s evaluated.", count(s.evaluated, "target was", "targets were"))

	if s.young > 0 {
		fmt.Fprintf(&b, " %s younger than %s (%s) and follow at %s.", count(s.young, "is", "are"), keyCooldown, s.cooldown, s.oldEnoughAt.UTC().Format(time.RFC3339))
	}
	if s.notAccepted > 0 {
		fmt.Fprintf(&b, " %s left out by the acceptedResources of the recommender.", count(s.notAccepted, "is", "are"))
	}
	if s.unsupported > 0 {
		fmt.Fprintf(&b, " %s of a kind that no recommender of the rule supports.", count(s.unsupported, "is", "are"))
	}

	return b.String()
}
