// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Decide returns what to do next with one workload. Called again before the plan was carried out, it returns the same plan.
func Decide(in Input) Plan {
	p := decide(in)
	if p.State.Phase != Untouched {
		p.State.ChangedAt = changedAt(in, p.State)

		// While pods are missing, the answers of the API server are awaited.
		if in.Creation.Missing > 0 {
			p = p.withRequeue(in.Policy.PollInterval)
		}
	}

	return p
}

func decide(in Input) Plan {
	in = withWholeCores(in)
	p := Plan{State: in.State.Clone()}
	switch {
	case in.Terminating:
		return p.withSummary("the workload or its namespace is being deleted; nothing is touched")
	case in.OptedOut:
		return p.withSummary("opted out by label; nothing is touched")
	case p.State.Phase == Stopped && in.DesiredSize.Empty():
		return Plan{}
	case p.State.Phase == Stopped:
		return p.withSummary("stopped: %s", p.State.Reason)
	}

	// While a step is taken out of the template, that still contains what it had before.
	if t := p.State.Template; t != nil && in.Template.contains(*t) && !p.State.restoresTemplate() {
		p.State.TemplateSeen = true
	}

	p.State = p.State.learnAmounts(in)
	if p.State.Phase != Untouched && p.State.Phase != Withdrawing {
		if reason := findDrift(in, p.State); reason != "" {
			return stop(in, p, reason)
		}
	}

	if in.DesiredSize.Empty() {
		return withdraw(in, p)
	}

	if p.State.Phase == Withdrawing { // The recommendation was switched on again.
		p.State = p.State.enter(Resting, in.Now)
	}

	p.State.Recommendation = in.Recommendation
	p.State.Reach = in.Reach
	if reason := findCreationRefusal(in, p.State); reason != "" {
		p = undo(in, p, reason)
	} else if reason := findRegression(in, p.State); reason != "" {
		p = rollBack(in, p, reason)
	}

	p = restoreTemplate(in, p)
	if p.State.Phase == RollingBack {
		p = giveNewPods(in, p)
		p, _ = finishRollback(in, p).withTargets(in)
		return p
	}

	p = raise(in, p)
	p = react(in, p)
	p = advance(in, p)
	p = lower(in, p)
	p = giveNewPods(in, p)
	p = changePods(in, p)
	p, _ = p.withTargets(in)

	return updateTemplate(in, p)
}

// start records the original size with the first change of a workload.
func start(in Input, s State) State {
	if s.Phase != Untouched {
		return s
	}

	s.Original = in.effectiveSize()
	s.Owner = in.Owner
	s.Previous = in.effectiveSize()
	s.Current = in.effectiveSize()
	if !in.Template.Equal(s.Original) {
		declared := in.Template.Clone()
		s.Declared = &declared
	}

	s.AdjustedTargets = trackTargets(s.AdjustedTargets, in.Targets)

	return s.enter(Resting, in.Now)
}

// currentSize returns the size that pods should have before this decision.
func currentSize(in Input, s State) Size {
	if s.Phase == Untouched {
		return in.effectiveSize()
	}

	return s.Current
}

// raise applies increases at once. Windows and budgets do not delay an increase, because it makes the workload safer; the circuit
// breaker does.
func raise(in Input, p Plan) Plan {
	to, changed := Raise(currentSize(in, p.State), in.DesiredSize, in.Policy)
	if !changed {
		return p
	}

	if reason := cmp.Or(in.Blocked, in.Allowance.BreakerOpen); reason != "" {
		p.Summary = reason
		return p
	}

	// There is no size to return to. A default of a LimitRange may be below what the template requests.
	if reason := in.effectiveSize().aboveLimit(); p.State.Phase == Untouched && reason != "" {
		return p.withSummary("no pod of the template is created: %s", reason).withRequeue(in.Policy.PollInterval)
	}

	// Pods of the raised size may be the ones that were not created.
	if p.State.Uncreatable && in.Now.Before(p.State.HeldUntil) {
		return p
	}

	if reason := in.Creation.refusalOf(to); reason != "" {
		return p.withSummary("%s", refusedSummary("raised", to, reason)).withRequeue(in.Policy.PollInterval)
	}

	s := start(in, p.State)
	p = p.withEvent(false, "AdoptionRaised", "raised at once, from %s to %s", s.Current, to)
	s = s.rememberSize(s.Current)

	// A later rollback must not undo this increase.
	previous, raised := Raise(s.Previous, to, Policy{})
	s.Previous = previous
	s.PreviousGiven = s.PreviousGiven && !raised
	s.Current = to
	p.State = s

	return p
}

// advance moves on from phases that end by themselves.
func advance(in Input, p Plan) Plan {
	switch p.State.Phase {
	case Lowering:
		return settle(in, p)
	case Watching:
		return watch(in, p)
	case Held:
		return hold(in, p)
	}

	return p
}

// maxSettleFactor is the number of settle times that a step waits for pods whose size could not be changed at all.
const maxSettleFactor = 10

// settle starts the watch when all pods have their size, or when the time for it is over.
func settle(in Input, p Plan) Plan {
	resizing, unchanged := 0, 0
	for _, pod := range in.Pods {
		to, reason := p.State.targetSize(pod, p.State.raisedSize(pod, p.State.Current, in.Now))
		switch {
		case pod.NotResizable != "" || reason != "":
		case !pod.size().Equal(to) && p.State.isKnownSize(pod) && (p.State.Reach != Recreate || createdBeforeChange(in, p.State, pod)):
			unchanged++
		case pod.ResizeStatus == ResizeInProgress || pod.ResizeStatus == ResizeDeferred || pod.ResizeStatus == ResizeFailed:
			resizing++
		}
	}

	passed := in.Now.Sub(p.State.PhaseSince)
	if unchanged > 0 && passed < maxSettleFactor*in.Policy.Settle || resizing > 0 && passed < in.Policy.Settle {
		return p.withSummary("lowering, step %d: %s; %s without these requests yet", p.State.Steps, p.State.Current, units.FormatCount(unchanged+resizing, "pod")).
			withRequeue(in.Policy.PollInterval)
	}

	// StepAt stays: regressions during the resize count.
	p.State = p.State.enter(Watching, in.Now)
	return watch(in, p)
}

// watch ends the step when its time is over without a regression.
func watch(in Input, p Plan) Plan {
	end := p.State.PhaseSince.Add(in.Policy.Watch)
	if in.Now.Before(end) {
		return p.withSummary("watching step %d, until %s: %s", p.State.Steps, formatClock(end), p.State.Current).
			withRequeue(min(in.Policy.PollInterval, end.Sub(in.Now)))
	}

	p.State = p.State.recordOutcome(in.Now, "").enter(Resting, in.Now)
	p.State.Rollbacks = 0
	return p
}

// hold ends the pause after a rollback.
func hold(in Input, p Plan) Plan {
	if until := p.State.HeldUntil; in.Now.Before(until) {
		return p.withSummary("rolled back, %s; nothing is lowered before %s", p.State.Reason, until.UTC().Format(time.RFC3339)).withRequeue(until.Sub(in.Now))
	}

	p.State.Reason = ""
	p.State.Uncreatable = false
	p.State = p.State.enter(Resting, in.Now)
	return p
}

// asRecommended is the summary of a workload whose pods have the desired size.
const asRecommended = "as recommended"

// lower starts the next step down if nothing prevents it.
func lower(in Input, p Plan) Plan {
	if p.State.Phase != Resting && p.State.Phase != Untouched {
		return p
	}

	policy := in.Policy
	if p.State.Reach == Recreate {
		policy.Step = 1 // Each step replaces all pods, so one step applies the final size.
	}

	to, changed := Lower(currentSize(in, p.State), in.DesiredSize, policy, in.MinHealthy)
	if !changed {
		p.Summary = cmp.Or(p.Summary, asRecommended)
		return p
	}

	stepToWholeCores(in, currentSize(in, p.State), &to)
	if reason := in.Creation.refusalOf(to); reason != "" {
		return p.withSummary("%s", refusedSummary("lowered", to, reason)).withRequeue(in.Policy.PollInterval)
	}

	if reason := delayReason(in); reason != "" {
		return p.withSummary("waiting to lower to %s: %s", to, reason).withRequeue(in.Policy.PollInterval)
	}

	s := start(in, p.State)
	s = s.rememberSize(s.Current).enter(Lowering, in.Now)
	s.Previous = s.Current
	s.PreviousGiven = s.givesNewPods(s.Previous)
	s.Current = to
	s.Throttled = in.Signals.Throttled
	s.Steps++
	s.StepAt = in.Now
	p.State = s

	return p.withEvent(false, "AdoptionStep", "step %d down, from %s to %s", s.Steps, s.Previous, s.Current).
		withSummary("lowering, step %d: %s", s.Steps, s.Current).withRequeue(in.Policy.PollInterval)
}

// delayReason returns why no reduction starts now, or "".
func delayReason(in Input) string {
	a := in.Allowance
	if reason := cmp.Or(in.Blocked, in.Stale, a.BreakerOpen, a.WindowClosed, a.BudgetSpent); reason != "" {
		return reason
	}

	switch {
	case in.RolloutInProgress:
		return "a roll-out is in progress"
	case in.Creation.Missing > 0 && !in.Creation.RefusedAt.IsZero() && !in.Creation.ByQuota: // Lower requests need less of a quota.
		return units.FormatCount(in.Creation.Missing, "pod") + " cannot be created: " + in.Creation.Message
	case len(in.Pods) == 0:
		return "no pod is running that could be watched"
	}

	return unhealthyReason(in)
}

// changePods resizes running pods to the current size.
func changePods(in Input, p Plan) Plan {
	if p.State.Phase == Untouched || p.State.Phase == Stopped {
		return describeOutcome(in, p, podChanges{})
	}

	changes := planResizes(in, p.State, p.State.Current)
	p = describeOutcome(in, p.withChanges(changes), changes)

	if changes.remaining > 0 {
		return p.withRequeue(in.Policy.PollInterval)
	}

	return p
}

// rollBack reverts the last step, or everything when the first rollback was not enough.
func rollBack(in Input, p Plan, reason string) Plan {
	s := p.State
	if s.Phase == Held {
		s.Previous, _ = Raise(s.Current, s.Original, Policy{})
		s.PreviousGiven = false
	}

	p = p.withEvent(true, "AdoptionRolledBack", "step %d caused a regression: %s; back from %s to %s", s.Steps, reason, s.Current, s.Previous)
	s = s.recordOutcome(in.Now, reason).rememberSize(s.Current).enter(RollingBack, in.Now)
	s.Current = s.Previous.Clone()
	s.Reason = reason
	s.Rollbacks++

	// New pods that had this size before the step get it without another proof. Otherwise they keep that of their template until there is one.
	s.NewPods = nil
	if s.PreviousGiven {
		size := s.Current.Clone()
		s.NewPods = &size
	}
	p.State = s

	return p
}

// finishRollback resizes all pods back, and then holds, or stops after too many rollbacks.
func finishRollback(in Input, p Plan) Plan {
	changes := planResizes(in, p.State, p.State.Current)
	p = p.withSummary("rolling back: %s", p.State.Reason).withChanges(changes)
	if changes.remaining > 0 {
		return p.withRequeue(in.Policy.PollInterval)
	}

	if p.State.Rollbacks >= in.Policy.MaxRollbacks {
		return stop(in, p, fmt.Sprintf("%d steps in a row were rolled back, the last because %s", p.State.Rollbacks, p.State.Reason))
	}

	p.State.HeldUntil = in.Now.Add(in.Policy.CoolDown)
	p.State = p.State.enter(Held, in.Now)
	return hold(in, p)
}

// stop leaves everything as it is until the state is deleted.
func stop(in Input, p Plan, reason string) Plan {
	p.State.Reason = reason
	p.State = p.State.enter(Stopped, in.Now)
	return p.withSummary("stopped: %s", reason).
		withEvent(true, "AdoptionStopped", "%s; adoption of this workload stops. To start again, delete the annotation with its adoption state", reason)
}

// withdraw restores the original size and then deletes the state.
func withdraw(in Input, p Plan) Plan {
	if p.State.Phase == Untouched {
		return p
	}

	if s := p.State; s.Phase != Withdrawing {
		p = p.withEvent(false, "AdoptionWithdrawn", "no longer adopted: back from %s to %s", s.Current, s.Original)
		p.State = s.rememberSize(s.Current).enter(Withdrawing, in.Now).endRaises(in.Now)
	}

	p = p.withSummary("restoring the original size: %s", p.State.Original)
	if p.State.Template != nil {
		original := p.State.templateSize().Clone()
		p.Template = &original
		p.RestoreTemplate = true
	}

	// The state is deleted when the pods are back, or have had their time, and the template and the replicas are restored.
	changes := planResizes(in, p.State, p.State.Original)

	p, restored := p.withChanges(changes).withTargets(in)
	waiting := (changes.remaining > 0 || !restored) && in.Now.Sub(p.State.PhaseSince) < in.Policy.Settle
	if waiting || p.Replicas != nil || p.Template != nil && !p.State.templateRestored(in.Template) {
		return p.withRequeue(in.Policy.PollInterval)
	}

	p.State = State{}
	return p
}

// updateTemplate writes the final size into the pod template if the workload requests it.
func updateTemplate(in Input, p Plan) Plan {
	if !in.UpdateTemplate || p.State.Phase != Resting || p.State.Current.Replicas != nil || p.Template != nil {
		return p
	}

	to := p.State.templateGoal()
	if _, more := Lower(p.State.Current, in.DesiredSize, in.Policy, 0); more || in.Template.contains(to) {
		return p // More steps follow, or the template has the size.
	}

	if p.State.Template == nil || !p.State.Template.Equal(to) {
		// The roll-out creates pods of this size. Those of the original size need no proof.
		unproven := !p.State.givesNewPods(p.State.Current) && !p.State.Current.Equal(p.State.Original)
		if in.Allowance.WindowClosed != "" || in.Allowance.BreakerOpen != "" || in.Blocked != "" || in.RolloutInProgress || unproven {
			return p.withRequeue(in.Policy.PollInterval)
		}

		p.State = p.State.rememberSize(in.effectiveSize())
		p.State.Template = &to
		p.State.TemplateSeen = false
		p = p.withEvent(false, "AdoptionTemplate", "the pod template gets %s", to)
	}

	p.Template = &to
	return p
}
