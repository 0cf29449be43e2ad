// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/series"
)

// Plan is what is to be done, and what each rule says.
type Plan struct {
	At    time.Time
	Rules []Finding
	Avoid Avoidance
	// Throttles take cpu away and give it back, one for a container at most.
	Throttles []Throttle
	// MemoryThrottles take memory away and give it back, one for a container at most.
	MemoryThrottles []MemoryThrottle
	Evictions       []Eviction
	// Previews are what rules in preview would do.
	Previews []Preview
}

// Preview is what a rule in preview would do.
type Preview struct {
	Rule            string
	Throttles       []Throttle
	MemoryThrottles []MemoryThrottle
	Evictions       []Eviction
}

// Phase is where a rule stands.
type Phase string

// The phases.
const (
	// Calm is not above the threshold.
	Calm Phase = "calm"
	// Rising is above it, not yet often enough.
	Rising Phase = "rising"
	// Firing is above it, often enough: the action is taken.
	Firing Phase = "firing"
	// Falling has fired and is no longer above it, not yet often enough: nothing more is taken and nothing given back.
	Falling Phase = "falling"
	// Unknown has no measurement that counts: nothing is done.
	Unknown Phase = "unknown"
	// Held has fired before its metric became unknown: what was done stays for a while.
	Held Phase = "held"
)

// WithholdReason is why a rule that fires evicts nobody, or not all that it should.
type WithholdReason string

// The reasons, other than that nobody has to go.
const (
	NotWithheld WithholdReason = ""
	// WithheldByWaterMark is a use that is not above the mark.
	WithheldByWaterMark WithholdReason = "water-mark"
	// WithheldByRate is the node's own limit.
	WithheldByRate WithholdReason = "rate"
	// WithheldByPause is what State.PauseEvictions was told.
	WithheldByPause WithholdReason = "hold"
	// WithheldForMetric is for the metric to show the last eviction.
	WithheldForMetric WithholdReason = "waiting"
	// WithheldNoCandidate is that none is left who may be evicted.
	WithheldNoCandidate WithholdReason = "nobody"
)

// Finding is what a rule says.
type Finding struct {
	// Rule is its name, Action that of what it does.
	Rule, Action string
	Phase        Phase
	// Value is the highest of the selected series; it means nothing where the metric is unknown.
	Value, Threshold float64
	Unit             string
	// Count of Needed measurements in a row, towards firing or towards the end.
	Count, Needed int
	// Gap is how much has to go, in the unit of Of, before what is about to go; Going is the latter.
	Gap, PendingRelease float64
	Resource            Resource
	// Shortfall is what remains of the gap after all that the plan does for it.
	Shortfall float64
	// Reason says what the phase does not: why a metric is unknown, why nothing is done, who was left alone.
	Reason string
	// Withheld says in a word why nobody is evicted though the action says so; Why has the numbers.
	Withheld WithholdReason
	// Preview tells that nothing is done for it.
	Preview bool
	// Interference is, for rules on it, who waits and who is likely to be the cause; nil where nobody waits more than usual.
	Interference *Interference
}

func (f *Finding) withhold(by WithholdReason, why string) { f.Withheld, f.Reason = by, why }

// Avoidance is whether new pods are kept away.
type Avoidance struct {
	// Desired is how it should be; Change tells that it is not so.
	Desired, Change bool
	// Until is when it ends if nothing more happens; zero where that is not known.
	Until  time.Time
	Reason string
}

// PodRef names a pod.
type PodRef struct{ UID, Namespace, Name string }

// String is namespace/name, or the UID where the name is not known.
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
	// Original is what the quota was before anything was taken.
	Original Quota
	// Freed is what it takes off the use; negative where cpu is given back.
	Freed series.MilliCPU
	// Step is the share by which it is taken and given back.
	Step series.Ratio
	// Weight is the share of its weight that the pod keeps, 0 to 1, so that what it still may use it gets after others; 0 for all of it.
	// Only pods without a claim to cpu lose weight: on reclaimed capacity, or BestEffort.
	Weight series.Ratio
	Rule   string
	Reason string
}

// Eviction is a pod that has to go.
type Eviction struct {
	Pod PodRef
	// GraceOverride is nil for the pod's own; Takes is the one or the other.
	GraceOverride *time.Duration
	GracePeriod   time.Duration
	// Freed is what the pod uses of the resource Of, in millicores or bytes; of disks it is what By counts.
	Freed    float64
	Resource Resource
	// Criterion is what the victims were ordered by.
	Criterion Criterion
	Rule      string
	Reason    string
}

// String is a quota in cores.
func (q Quota) String() string {
	switch {
	case q == Unlimited:
		return "no limit"
	case q <= 0:
		return "unknown"
	}
	return fmt.Sprintf("%.3g cores", float64(q)/milli)
}

// format writes an amount of a resource for people.
func (r Resource) format(amount float64) string {
	switch r {
	case CPU:
		return fmt.Sprintf("%.0fm cpu", amount)
	case Disks:
		return fmt.Sprintf("%.0f disk operations/s", amount)
	case Memory, NoResource:
	}
	return fmt.Sprintf("%.0f MiB memory", amount/(1<<20))
}
