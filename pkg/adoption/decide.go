// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"time"
)

// Input is all that a decision about one workload needs.
type Input struct {
	Now    time.Time
	Policy Policy
	// DesiredSize is the recommended size; empty where adoption is no longer wanted. By names the recommendation.
	DesiredSize    Size
	Recommendation string
	// Stale says why the recommendation is too old, or failed, to lower anything by it; empty where it is not.
	Stale string

	// Template is what the workload itself asks for, of the containers that are wanted; Owner the field manager that says so.
	Template Size
	Owner    string
	// Blocked says why nothing may be begun, neither up nor down: something else would have to change with it. What has begun is
	// still watched, and taken back where it must be.
	Blocked string
	// Targets are those of the workload's autoscaler, where it may be changed with the requests.
	Targets []Target

	// OptedOut, by the owner's label, and Ending, with its namespace: nothing is touched.
	OptedOut, Terminating bool
	// RolloutInProgress tells that a roll-out of the owner's is under way.
	RolloutInProgress bool
	// UpdateTemplate tells that the pod template shall get the size, once pods have proved it.
	UpdateTemplate bool

	// Reach says which pods get the size, and how; MinReplicas how many have to run before one is touched, 0 for the usual number.
	Reach       Reach
	MinReplicas int32
	// DesiredReplicas is how many pods the workload shall have; 0 where that is not known.
	DesiredReplicas int32

	Pods    []Pod
	Signals Signals
	State   State
	// Allowance is what budgets, the breaker and windows allow.
	Allowance Allowance
	// DisruptionsAllowed is how many pods may be restarted now, by the disruption budgets; negative where none bounds it.
	DisruptionsAllowed int
	// MinHealthy is how many replicas disruption budgets want; 0 where none does.
	MinHealthy int32
}

// PodResize is one pod that is given another size.
type PodResize struct {
	Pod, UID string
	From, To Size
	// Restarts tells that a container of it restarts for that.
	Restarts bool
}

// Event is what people should be told, as an event.
type Event struct {
	Warning bool
	Reason  string
	Text    string
}

// Plan is what is to be done. State is written down first.
type Plan struct {
	State State
	// Resizes are the pods to resize now.
	Resizes []PodResize
	// Evictions are the pods to evict now.
	Evictions []Eviction
	// Targets of the autoscaler to write, before any pod is changed.
	Targets []Target
	// Replicas is the number to scale to, nil to leave it.
	Replicas *int32
	// Template is what to write into the pod template; nil to leave it. Restore says that it goes back to its owner.
	Template        *Size
	RestoreTemplate bool
	Events          []Event
	// Summary is one line on how it stands; Remarks are about single pods.
	Summary string
	Remarks []string
	// RequeueAfter is when to look again; 0 for only after a change.
	RequeueAfter time.Duration
}

// decision is a plan in the making.
type decision struct {
	in   Input
	s    State
	plan Plan
}

// Decide says what to do next. It is idempotent: asked again before anything was done, it says the same.
func Decide(in Input) Plan {
	d := &decision{in: in, s: in.State.Clone()}
	d.run()
	if d.s.Phase != Untouched {
		d.s.ChangedAt = d.changedAt()
	}
	d.plan.State = d.s
	return d.plan
}

func (d *decision) run() {
	switch {
	case d.in.Terminating:
		d.plan.Summary = "the workload or its namespace is being deleted; nothing is touched"
		return
	case d.in.OptedOut:
		d.plan.Summary = "opted out by label; nothing is touched"
		return
	case d.s.Phase == Stopped && d.in.DesiredSize.Empty():
		d.s = State{} // Nobody wants it, and nobody touches it.
		return
	case d.s.Phase == Stopped:
		d.plan.Summary = "stopped: " + d.s.Reason
		return
	}
	if d.s.Template != nil && d.in.Template.contains(*d.s.Template) {
		d.s.TemplateSeen = true
	}
	if d.s.Phase != Untouched && d.s.Phase != Withdrawing {
		if why := findDrift(d.in, d.s); why != "" {
			d.stop(why)
			return
		}
	}
	switch {
	case d.in.DesiredSize.Empty():
		d.withdraw()
		return
	case d.s.Phase == Withdrawing: // It is wanted again.
		d.begin(Resting)
	}
	d.s.Recommendation, d.s.Reach = d.in.Recommendation, d.in.Reach
	if why := findRegression(d.in, d.s); why != "" {
		d.rollBack(why)
	}
	if d.s.Phase == RollingBack {
		d.finishRollBack()
		d.follow()
		return
	}
	d.raise()
	switch d.s.Phase {
	case Lowering:
		d.settle()
	case Watching:
		d.watch()
	case Held:
		d.rest()
	}
	if d.s.Phase == Resting || d.s.Phase == Untouched {
		d.lower()
	}
	d.bringAll()
	d.follow()
	d.changeTemplate()
}

func (d *decision) begin(phase Phase) { d.s.Phase, d.s.PhaseSince = phase, d.in.Now }

func (d *decision) tellf(warning bool, reason, format string, args ...any) {
	d.plan.Events = append(d.plan.Events, Event{Warning: warning, Reason: reason, Text: fmt.Sprintf(format, args...)})
}

// start notes, with the first change, what there was before.
func (d *decision) start() {
	if d.s.Phase != Untouched {
		return
	}
	d.s.Original, d.s.Owner = d.in.Template.Clone(), d.in.Owner
	d.s.Previous, d.s.Current = d.in.Template.Clone(), d.in.Template.Clone()
	d.begin(Resting)
	d.tie()
}

// from is what the workload has now.
func (d *decision) from() Size {
	if d.s.Phase == Untouched {
		return d.in.Template.Clone()
	}
	return d.s.Current
}

// raise gives at once what should be more. Windows and budgets do not hold it back, for it is what makes a workload safe;
// the breaker does.
func (d *decision) raise() {
	to, changed := Raise(d.from(), d.in.DesiredSize, d.in.Policy)
	if !changed {
		return
	}
	if why := cmp.Or(d.in.Blocked, d.in.Allowance.BreakerOpen); why != "" {
		d.plan.Summary = why
		return
	}
	d.start()
	d.s.rememberSize(d.s.Current)
	d.tellf(false, "AdoptionRaised", "raised at once, from %s to %s", d.s.Current, to)
	// What is rolled back later must not take away what was raised now.
	d.s.Previous, _ = Raise(d.s.Previous, to, Policy{})
	d.s.Current = to
}

// lower begins the next step down where everything is in order.
func (d *decision) lower() {
	policy := d.in.Policy
	if d.s.Reach == Recreate {
		policy.Step = 1 // Each step replaces all pods: there is one.
	}
	to, changed := Lower(d.from(), d.in.DesiredSize, policy, d.in.MinHealthy)
	if !changed {
		if d.plan.Summary == "" {
			d.plan.Summary = "as recommended"
		}
		return
	}
	if why := d.holdsBack(); why != "" {
		d.plan.Summary = fmt.Sprintf("waiting to lower to %s: %s", to, why)
		d.again(d.in.Policy.PollInterval)
		return
	}
	d.start()
	d.s.rememberSize(d.s.Current)
	d.s.Previous, d.s.Current = d.s.Current, to
	d.s.Throttled = d.in.Signals.Throttled
	d.s.Steps++
	d.s.StepAt = d.in.Now
	d.begin(Lowering)
	d.tellf(false, "AdoptionStep", "step %d down, from %s to %s", d.s.Steps, d.s.Previous, d.s.Current)
	d.plan.Summary = fmt.Sprintf("lowering, step %d: %s", d.s.Steps, d.s.Current)
	d.again(d.in.Policy.PollInterval)
}

// holdsBack says why nothing is lowered now.
func (d *decision) holdsBack() string {
	switch {
	case d.in.Blocked != "":
		return d.in.Blocked
	case d.in.Stale != "":
		return d.in.Stale
	case d.in.Allowance.BreakerOpen != "":
		return d.in.Allowance.BreakerOpen
	case d.in.Allowance.WindowClosed != "":
		return d.in.Allowance.WindowClosed
	case d.in.Allowance.BudgetSpent != "":
		return d.in.Allowance.BudgetSpent
	case d.in.RolloutInProgress:
		return "a roll-out is under way"
	case len(d.in.Pods) == 0:
		return "no pod runs that could be watched"
	default:
		return unhealthyReason(d.in)
	}
}

// maxSettleFactor is how many times longer than a node a pod may keep a step from going on that could not be given its size at all.
const maxSettleFactor = 10

// settle goes on to the watch when all pods have their size, or their nodes have had long enough for it.
func (d *decision) settle() {
	given, left := 0, 0
	known := isKnownSize(d.s)
	for _, p := range d.in.Pods {
		to, why := d.s.targetSize(p, d.s.Current)
		switch {
		case p.NotResizable != "" || why != "":
		case !p.size().Equal(to) && known(p) && (d.s.Reach != Recreate || d.older(p)):
			left++
		case p.ResizeStatus == ResizeInProgress || p.ResizeStatus == ResizeDeferred || p.ResizeStatus == ResizeFailed:
			given++
		}
	}
	passed := d.in.Now.Sub(d.s.PhaseSince)
	if left > 0 && passed < maxSettleFactor*d.in.Policy.Settle || given > 0 && passed < d.in.Policy.Settle {
		d.plan.Summary = fmt.Sprintf("lowering, step %d: %s; %d pods to go", d.s.Steps, d.s.Current, left+given)
		d.again(d.in.Policy.PollInterval)
		return
	}
	// StepAt stays: what got worse while pods were resized counts.
	d.begin(Watching)
	d.watch()
}

// watch ends when the time is over and nothing got worse.
func (d *decision) watch() {
	end := d.s.PhaseSince.Add(d.in.Policy.Watch)
	if d.in.Now.Before(end) {
		d.plan.Summary = fmt.Sprintf("watching step %d, until %s: %s", d.s.Steps, formatClock(end), d.s.Current)
		d.again(min(d.in.Policy.PollInterval, end.Sub(d.in.Now)))
		return
	}
	d.s.recordOutcome(d.in.Now, "")
	d.s.Rollbacks = 0
	d.begin(Resting)
}

// rest ends the time after a roll-back.
func (d *decision) rest() {
	if d.in.Now.Before(d.s.HeldUntil) {
		d.plan.Summary = fmt.Sprintf("rolled back, %s; nothing is lowered before %s", d.s.Reason, d.s.HeldUntil.UTC().Format(time.RFC3339))
		d.again(d.s.HeldUntil.Sub(d.in.Now))
		return
	}
	d.s.Reason = ""
	d.begin(Resting)
}

// rollBack takes the last step back.
func (d *decision) rollBack(why string) {
	if d.s.Phase == Held {
		d.s.Previous, _ = Raise(d.s.Current, d.s.Original, Policy{})
	}
	d.s.recordOutcome(d.in.Now, why)
	d.s.rememberSize(d.s.Current)
	d.tellf(true, "AdoptionRolledBack", "step %d made it worse: %s; back from %s to %s", d.s.Steps, why, d.s.Current, d.s.Previous)
	d.s.Current, d.s.Reason = d.s.Previous.Clone(), why
	d.s.Rollbacks++
	d.begin(RollingBack)
}

// finishRollBack brings all pods back, and then holds, or stops after too many.
func (d *decision) finishRollBack() {
	d.plan.Summary = "rolling back: " + d.s.Reason
	if d.bring(d.s.Current) > 0 {
		d.again(d.in.Policy.PollInterval)
		return
	}
	if d.s.Rollbacks >= d.in.Policy.MaxRollbacks {
		d.stop(fmt.Sprintf("%d steps in a row were rolled back, the last because %s", d.s.Rollbacks, d.s.Reason))
		return
	}
	d.s.HeldUntil = d.in.Now.Add(d.in.Policy.CoolDown)
	d.begin(Held)
	d.rest()
}

// stop leaves everything as it is.
func (d *decision) stop(why string) {
	d.s.Reason = why
	d.begin(Stopped)
	d.tellf(true, "AdoptionStopped", "%s; nothing more is done. Delete the annotation that holds the state of adoption to begin anew", why)
	d.plan.Summary = "stopped: " + why
}

// withdraw gives back what there was before adoption, and then forgets.
func (d *decision) withdraw() {
	if d.s.Phase == Untouched {
		return
	}
	if d.s.Phase != Withdrawing {
		d.s.rememberSize(d.s.Current)
		d.tellf(false, "AdoptionWithdrawn", "no longer adopted: back from %s to %s", d.s.Current, d.s.Original)
		d.begin(Withdrawing)
	}
	d.plan.Summary = "giving back what there was before: " + d.s.Original.String()
	if d.s.Template != nil {
		earlier := d.s.Original.Clone()
		d.plan.Template, d.plan.RestoreTemplate = &earlier, true
	}
	left := d.bring(d.s.Original)
	back := d.follow()
	if (left > 0 || !back) && d.in.Now.Sub(d.s.PhaseSince) < d.in.Policy.Settle || d.plan.Replicas != nil || d.plan.Template != nil && !d.in.Template.contains(d.s.Original) {
		d.again(d.in.Policy.PollInterval)
		return
	}
	d.s = State{}
}

// changeTemplate writes the size into the pod template once it has proved itself, where that is asked for.
func (d *decision) changeTemplate() {
	if !d.in.UpdateTemplate || d.s.Phase != Resting || d.s.Current.Replicas != nil || d.plan.Template != nil {
		return
	}
	if _, more := Lower(d.s.Current, d.in.DesiredSize, d.in.Policy, 0); more || d.in.Template.contains(d.s.Current) {
		return // Not there yet, or there.
	}
	to := d.s.Current.Clone()
	if d.s.Template == nil || !d.s.Template.Equal(to) {
		if d.in.Allowance.WindowClosed != "" || d.in.Allowance.BreakerOpen != "" || d.in.Blocked != "" || d.in.RolloutInProgress {
			d.again(d.in.Policy.PollInterval)
			return
		}
		d.s.rememberSize(d.in.Template)
		d.s.Template, d.s.TemplateSeen = &to, false
		d.tellf(false, "AdoptionTemplate", "the pod template gets %s", to)
	}
	d.plan.Template = &to
}

func (d *decision) again(after time.Duration) {
	if after > 0 && (d.plan.RequeueAfter == 0 || after < d.plan.RequeueAfter) {
		d.plan.RequeueAfter = after
	}
}
