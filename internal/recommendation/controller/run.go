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

// pass is one pass over a rule. A round evaluates all targets of a rule; it has one pass, or several with passes of other
// rules in between if there are many targets. A pass is read-only once planned.
type pass struct {
	rule *analysisv1alpha1.RecommendationRule
	now  time.Time
	// number is that of the round; a round that is retried keeps its number.
	number   int32
	schedule schedule
	// catchUp marks a pass over a rule that is not due. It evaluates the targets that were too young in the last round and
	// those whose evaluation was requested, and keeps the number and the time of that round.
	catchUp bool
	// upToDate marks a rule that is not due and has no young targets left; wait is the time until it is due.
	upToDate bool
	wait     time.Duration
	// recommenders are in evaluation order.
	recommenders []*configuredRecommender
	// problems are the invalid parts of a rule whose other parts are evaluated.
	problems []error
}

// planPass returns the pass that a rule needs now. Its errors are a passError.
func planPass(rule *analysisv1alpha1.RecommendationRule, settings Settings, now time.Time) (pass, error) {
	p := pass{rule: rule, now: now, number: rule.Status.RunNumber + 1}
	var err error
	if p.schedule, err = parseSchedule(rule); err != nil {
		return p, passError{reasonInvalidInterval, false, err}
	}

	if wait, never := p.schedule.wait(rule, now); never || wait > 0 {
		p.catchUp = true
		p.number = rule.Status.RunNumber
		p.wait = wait
		p.upToDate = !hasYoungTargets(rule)
	}

	named := map[string]bool{}
	for i, spec := range rule.Spec.Recommenders {
		configured, err := settings.configure(spec)
		if err == nil && named[spec.Name] {
			err = fmt.Errorf("recommender %q is listed twice; the first entry is used", spec.Name)
		}

		if err != nil {
			p.problems = append(p.problems, fmt.Errorf("spec.recommenders[%d]: %w", i, err))
			continue
		}

		named[spec.Name] = true
		p.recommenders = append(p.recommenders, &configured)
	}

	slices.SortStableFunc(p.recommenders, func(a, b *configuredRecommender) int {
		return cmp.Compare(a.order, b.order)
	})

	if len(p.recommenders) == 0 && len(p.problems) > 0 {
		return p, passError{reason: reasonInvalidConfig, error: errors.New(joinErrors(p.problems))}
	}

	return p, nil
}

// passWork are the tasks of a pass.
type passWork struct {
	// tasks belong to this pass, remaining to the next ones of the round.
	tasks, remaining []task
	stats            passStats
}

// tasks returns what the round has still to evaluate.
func (p pass) tasks(targets selection, found recommendationSet, progress *progress) passWork {
	var work passWork
	evaluated := map[identity]bool{}
	for _, w := range targets.targets {
		supported := false
		for _, recommender := range p.recommenders {
			if !recommender.supports(w.Ref) {
				continue
			}

			supported = true
			t := task{id: identityOf(w.Ref, recommender.name), recommender: recommender, target: w}

			t.existing = found.byIdentity[t.id]
			t.requested = t.existing != nil && evaluationRequested(t.existing)
			evaluated[t.id] = work.stats.count(p, recommender, w)
			if evaluated[t.id] && p.isPending(t, progress) {
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

// isPending reports whether a task belongs to the round and has still to be done.
func (p pass) isPending(t task, progress *progress) bool {
	_, failed := progress.failed[t.id]
	switch {
	case !progress.isDue(t.id, p.now):
		return false
	case failed: // The failure is in its status, so it looks evaluated.
		return true
	case p.upToDate:
		return t.requested
	case p.catchUp:
		return t.requested || t.existing == nil && t.target.Created.Add(t.recommender.cooldown).After(p.rule.Status.LastUpdateTime.Time)
	}

	return t.requested || t.existing == nil || !isEvaluatedIn(t.existing, p.rule.Generation, p.number)
}

// split keeps the tasks of the first namespaces, at most size of them or all of one larger namespace, for this pass.
func (p pass) split(work passWork, size int) passWork {
	work.tasks, work.remaining = splitPass(work.tasks, size)
	return work
}

// decide returns a proposal for each task. It changes nothing.
func (p pass) decide(tasks []task, targets selection, data *passData) []proposal {
	var out []proposal
	for _, recommender := range p.recommenders { // In order: some recommenders use the decisions of earlier ones.
		for _, t := range tasks {
			if t.recommender == recommender {
				out = append(out, t.propose(data, targets.errorOf(t)))
			}
		}
	}

	return out
}

// obsolete returns the Recommendations of targets that the rule no longer selects, and duplicates. It returns none before
// the last pass of a round, and while a selector could not be resolved, since missing targets may still exist.
func (p pass) obsolete(work passWork, targets selection, found recommendationSet) []*analysisv1alpha1.Recommendation {
	if len(targets.failures) > 0 || len(work.remaining) > 0 || p.upToDate {
		return nil
	}

	invalid := map[string]bool{} // Recommenders that do not run keep their Recommendations.
	for _, recommender := range p.rule.Spec.Recommenders {
		invalid[recommender.Name] = true
	}

	selected := map[identity]bool{}
	for _, recommender := range p.recommenders {
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

// complete returns the outcome of the last pass of a round.
func (p pass) complete(stats passStats, targets selection, progress *progress, now time.Time) outcome {
	if p.upToDate {
		return outcome{wait: p.wait} // The condition stays that of the round.
	}

	var end outcome
	if p.catchUp {
		end.wait = p.schedule.next(p.rule.Status.LastUpdateTime.Time, now)
	} else {
		end = outcome{
			completed: now,
			number:    p.number,
			targets:   int32(stats.evaluated),
			wait:      p.schedule.next(now, now),
		}
	}

	switch {
	case len(progress.failed) > 0:
		end.condition = progress.failedCondition(reasonTargetsFailed)

	case len(targets.failures) > 0:
		end.condition = notReady(reasonSelectorFailed, joinErrors(targets.failures))
		if p.schedule.once {
			end.wait = retryIncomplete
		}

	case len(p.problems) > 0:
		end.condition = notReady(reasonInvalidConfig, joinErrors(p.problems))

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
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}

	return strconv.Itoa(n) + " " + many
}

// passStats counts the targets of a round, once for each recommender that supports them.
type passStats struct {
	evaluated int
	// notAccepted targets are excluded by acceptedResources, unsupported ones are of kinds that no recommender of the rule
	// supports.
	notAccepted, unsupported int
	// young targets are younger than the cooldown; the last of them is old enough at oldEnoughAt.
	young       int
	oldEnoughAt time.Time
	cooldown    time.Duration
}

// count adds a target and reports whether the round evaluates it.
func (s *passStats) count(p pass, recommender *configuredRecommender, w workload.Workload) bool {
	switch oldEnoughAt := w.Created.Add(recommender.cooldown); {
	case !recommender.accepts(w):
		s.notAccepted++
	case p.catchUp && w.Created.After(p.rule.Status.LastUpdateTime.Time):

		// It belongs to the next round; otherwise new targets could keep a round from ending.
	case p.now.Before(oldEnoughAt):
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
func (s *passStats) String() string {
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
