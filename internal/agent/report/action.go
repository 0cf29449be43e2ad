// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"time"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// Kind is a kind of action.
type Kind string

// Kinds.
const (
	CPUThrottle    Kind = "cpu-throttle"
	CPURestore     Kind = "cpu-restore"
	MemoryThrottle Kind = "memory-throttle"
	MemoryRestore  Kind = "memory-restore"
	Evict          Kind = "evict"
	Taint          Kind = "taint"
	Untaint        Kind = "untaint"
	// NodeResource is a change of the node's elastic resources, PodResource of the cgroup of a pod on them.
	NodeResource Kind = "node-resource"
	PodResource  Kind = "pod-resource"
	// CPUManager is a change of a container's CPUs, NodeZones of the NodeResourceTopology.
	CPUManager Kind = "cpu-manager"
	NodeZones  Kind = "node-resource-topology"
	// RuleFires and RuleEnds are state changes of a rule.
	RuleFires Kind = "rule-fires"
	RuleEnds  Kind = "rule-ends"
)

// executorLabels returns gocrane's subcomponent and step for a kind; empty for none.
func (k Kind) executorLabels() (part, step string) {
	switch k {
	case CPUThrottle, MemoryThrottle:
		return throttle, avoid
	case CPURestore, MemoryRestore:
		return throttle, restore
	case Evict:
		return evict, avoid

	case Taint:
		return schedule, avoid
	case Untaint:
		return schedule, restore
	case NodeResource, PodResource, CPUManager, NodeZones, RuleFires, RuleEnds:
	}

	return "", ""
}

// Outcome is the result of an action.
type Outcome string

// Outcomes.
const (
	// Done: executed.
	Done Outcome = "done"
	// NotEnforced: of a kind that is not enforced. Previewed: of a rule in preview.
	NotEnforced Outcome = "would"
	Previewed   Outcome = "preview"
	// Refused: not permitted. Withheld: no budget. Gone: the target no longer exists. Failed: an error.
	Refused  Outcome = "refused"
	Withheld Outcome = "withheld"
	Gone     Outcome = "gone"
	Failed   Outcome = "failed"
)

// Action is an action and its outcome.
type Action struct {
	Kind    Kind
	Outcome Outcome
	// Rule and Action are the rule and its action; empty for actions without a rule, such as restoring.
	Rule, Action string
	// Pod and Container are empty for actions on the node.
	Pod       qos.PodRef
	Container string
	From, To  string
	// Freed is in millicores or bytes of Resource; for disks in the unit of Criterion.
	Freed    float64
	Resource units.Resource
	// Criterion is the order of victims; empty for none.
	Criterion qos.Criterion
	// Grace is the grace period of an eviction; nil for other actions.
	Grace  *time.Duration
	Reason string
	// Error is the cause of a failure.
	Error string
	// EventReason is the reason of the event on the pod, or on the node without one; empty for no event.
	EventReason string
	// Warning makes the event a warning.
	Warning bool
}

// toRecord converts the action to an audit record.
func (a *Action) toRecord() Record {
	r := Record{
		Action:          a.Kind,
		Outcome:         a.Outcome,
		Error:           a.Error,
		Rule:            a.Rule,
		AvoidanceAction: a.Action,
		Namespace:       a.Pod.Namespace,
		Pod:             a.Pod.Name,
		UID:             a.Pod.UID,
		Container:       a.Container,
		From:            a.From,
		To:              a.To,
		Reason:          a.Reason,
	}

	switch a.Resource {
	case units.CPU:
		r.FreesCores = new(a.Freed / milli)
	case units.Memory:
		r.FreesBytes = &a.Freed
	case qos.Disks, qos.NoResource: // Not an amount.
	}

	if a.Criterion != "" {
		r.OrderedBy = a.Criterion
		r.Usage = &a.Freed
		if a.Resource == units.CPU {
			r.Usage = r.FreesCores
		}
	}

	if a.Grace != nil {
		r.GraceSeconds = new(a.Grace.Seconds())
	}

	return r
}

// throttleAction converts a change of a CPU limit.
func throttleAction(t *qos.Throttle, outcome Outcome) Action {
	a := Action{
		Kind:      CPUThrottle,
		Outcome:   outcome,
		Rule:      t.Rule,
		Pod:       t.Pod,
		Container: t.ContainerName,
		From:      t.From.String(),
		To:        t.To.String(),
		Freed:     float64(t.Freed),
		Resource:  units.CPU,
		Reason:    t.Reason,
	}

	if t.Freed < 0 {
		a.Kind = CPURestore
	}

	return a
}

// memoryThrottleAction converts a change of a memory limit.
func memoryThrottleAction(t *qos.MemoryThrottle, outcome Outcome) Action {
	a := Action{
		Kind:      MemoryThrottle,
		Outcome:   outcome,
		Rule:      t.Rule,
		Pod:       t.Pod,
		Container: t.ContainerName,
		From:      t.From.String(),
		To:        t.To.String(),
		Freed:     float64(t.Freed),
		Resource:  units.Memory,
		Reason:    t.Reason,
	}

	if t.Freed < 0 {
		a.Kind = MemoryRestore
	}

	return a
}

// evictionAction converts an eviction.
func evictionAction(e *qos.Eviction, outcome Outcome) Action {
	return Action{
		Kind:      Evict,
		Outcome:   outcome,
		Rule:      e.Rule,
		Pod:       e.Pod,
		Freed:     e.Freed,
		Resource:  e.Resource,
		Criterion: e.Criterion,
		Grace:     &e.GracePeriod,
		Reason:    e.Reason,
	}
}
