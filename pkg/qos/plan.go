// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Actions are the changes of limits and the evictions of a plan.
type Actions struct {
	// Throttles lower and raise CPU limits, at most one per container.
	Throttles []Throttle
	// MemoryThrottles lower and raise memory limits, at most one per container.
	MemoryThrottles []MemoryThrottle
	Evictions       []Eviction
}

// addCause appends the description of the interference to the reasons of the actions taken against it.
func (a *Actions) addCause(i *Interference) {
	if i == nil {
		return
	}

	for k := range a.Throttles {
		a.Throttles[k].Reason += "; " + i.String()
	}

	for k := range a.MemoryThrottles {
		a.MemoryThrottles[k].Reason += "; " + i.String()
	}

	for k := range a.Evictions {
		a.Evictions[k].Reason += "; " + i.String()
	}
}

// Plan holds the actions to take and the finding of each rule.
type Plan struct {
	Actions

	At    time.Time
	Rules []Finding
	Avoid Avoidance
	// Previews are the actions of rules in preview.
	Previews []Preview
}

// Preview holds the actions that a rule in preview would take.
type Preview struct {
	Actions

	Rule string
}

// Phase is the state of a rule.
type Phase string

// Phases.
const (
	// Calm: not above the threshold.
	Calm Phase = "calm"
	// Rising: above the threshold, not often enough yet.
	Rising Phase = "rising"
	// Firing: above the threshold often enough; the action is taken.
	Firing Phase = "firing"
	// Falling: fired and no longer above the threshold, not often enough yet; nothing is throttled or restored.
	Falling Phase = "falling"
	// Unknown: no usable measurement; nothing is done.
	Unknown Phase = "unknown"
	// Held: fired before its metric became unknown; actions stay in place for a while.
	Held Phase = "held"
)

// WithholdReason is the reason a firing rule evicts no pod, or fewer than needed.
type WithholdReason string

// Reasons other than that no eviction is needed.
const (
	NotWithheld WithholdReason = ""
	// WithheldByWaterMark: the use is not above the water mark.
	WithheldByWaterMark WithholdReason = "water-mark"
	// WithheldByRate: the node's rate limit is reached.
	WithheldByRate WithholdReason = "rate"
	// WithheldByPause: State.PauseEvictions is in effect.
	WithheldByPause WithholdReason = "hold"
	// WithheldForMetric: the metric does not show the last eviction yet.
	WithheldForMetric WithholdReason = "waiting"
	// WithheldNoCandidate: no pod is left that may be evicted.
	WithheldNoCandidate WithholdReason = "nobody"
)

// Finding is the result of evaluating a rule.
type Finding struct {
	// Rule is the rule's name, Action the name of its action.
	Rule, Action string
	Phase        Phase
	// Value is the highest value of the selected series; it is meaningless while the metric is unknown.
	Value, Threshold float64
	Unit             string
	// Count of Needed consecutive measurements, toward firing or toward the end.
	Count, Needed int
	// Gap is the amount to release, in the unit of Resource; PendingRelease is the part of it that terminating pods and planned actions
	// release.
	Gap, PendingRelease float64
	Resource            units.Resource
	// Shortfall is the part of the gap left after all planned actions.
	Shortfall float64
	// Reason explains the phase: why a metric is unknown, why nothing is done, which pods were spared.
	Reason string
	// Withheld is the reason no pod, or too few, are evicted; Reason has the numbers.
	Withheld WithholdReason
	// Preview reports that the rule takes no action.
	Preview bool
	// Interference is set for rules on interference while a pod waits longer than usual.
	Interference *Interference
}

// Avoidance states whether new pods are kept away.
type Avoidance struct {
	// Desired is the desired state; Change reports that the current state differs.
	Desired, Change bool
	// Until is the end if nothing else happens; zero if unknown.
	Until  time.Time
	Reason string
}

// PodRef identifies a pod.
type PodRef struct{ UID, Namespace, Name string }

// String returns namespace/name, or the UID if the name is unknown.
func (r PodRef) String() string {
	if r.Name == "" {
		return r.UID
	}

	return r.Namespace + "/" + r.Name
}

func (p *Pod) ref() PodRef { return PodRef{p.UID, p.Namespace, p.Name} }

// Throttle is a change of a container's quota.
type Throttle struct {
	Pod                        PodRef
	ContainerID, ContainerName string
	From, To                   Quota
	// Original is the quota before the first throttle.
	Original Quota
	// Freed is the reduction of use in millicores; negative when CPU is restored.
	Freed units.MilliCPU
	// Step is the share by which the quota is lowered and raised.
	Step units.Ratio
	// Weight is the share of its CPU weight that the pod keeps, 0 to 1; 0 for all of it. It is lowered only for pods without a claim to
	// CPU, on reclaimed capacity or BestEffort, so that other pods run first.
	Weight units.Ratio
	Rule   string
	Reason string
}

// Eviction is a pod to evict.
type Eviction struct {
	Pod PodRef
	// GraceOverride is nil for the pod's own grace period; GracePeriod is the effective one.
	GraceOverride *time.Duration
	GracePeriod   time.Duration
	// Freed is the pod's use of Resource in millicores or bytes; for disks in the unit of Criterion.
	Freed    float64
	Resource units.Resource
	// Criterion is the order in which the victim was chosen.
	Criterion Criterion
	Rule      string
	Reason    string
}

// String formats the quota in cores.
func (q Quota) String() string {
	switch {
	case q == Unlimited:
		return "no limit"
	case q <= 0:
		return "unknown"
	}

	return fmt.Sprintf("%.3g cores", float64(q)/milli)
}

// formatAmount formats an amount of a resource for messages.
func formatAmount(r units.Resource, amount float64) string {
	switch r {
	case units.CPU:
		return fmt.Sprintf("%.0fm cpu", amount)
	case Disks:
		return fmt.Sprintf("%.0f disk operations/s", amount)
	case units.Memory, NoResource:
	}

	return fmt.Sprintf("%.0f MiB memory", amount/(1<<20))
}
