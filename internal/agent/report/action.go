// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"time"

	"crane.io/crane/pkg/qos"
)

// Kind is what is done to somebody, or undone.
type Kind string

// The kinds.
const (
	CPUThrottle    Kind = "cpu-throttle"
	CPURestore     Kind = "cpu-restore"
	MemoryThrottle Kind = "memory-throttle"
	MemoryRestore  Kind = "memory-restore"
	Evict          Kind = "evict"
	Taint          Kind = "taint"
	Untaint        Kind = "untaint"
	// NodeResource is what the node offers of an elastic resource, PodResource what a group of a pod on one has.
	NodeResource Kind = "node-resource"
	PodResource  Kind = "pod-resource"
	// CPUManager is which CPUs a container runs on, NodeZones the object that says what the node's zones have.
	CPUManager Kind = "cpu-manager"
	NodeZones  Kind = "node-resource-topology"
	// RuleFires and RuleEnds are of a rule, and nothing that is done by itself.
	RuleFires Kind = "rule-fires"
	RuleEnds  Kind = "rule-ends"
)

// executorLabels's subcomponent and step for a kind; empty for none.
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

// Outcome is what came of an action.
type Outcome string

// The outcomes.
const (
	// Done was carried out.
	Done Outcome = "done"
	// NotEnforced is of a kind that is not carried out, Previewed of a rule that is not.
	NotEnforced Outcome = "would"
	Previewed   Outcome = "preview"
	// Refused was not allowed, Withheld had no budget, Gone nobody left to be done to, Failed an error.
	Refused  Outcome = "refused"
	Withheld Outcome = "withheld"
	Gone     Outcome = "gone"
	Failed   Outcome = "failed"
)

// Action is one that was carried out, or was not.
type Action struct {
	Kind    Kind
	Outcome Outcome
	// Rule and Action are what it was done for; empty where nothing is done for a rule, such as giving back.
	Rule, Action string
	// Pod and Container are empty where it is done to the node.
	Pod       qos.PodRef
	Container string
	From, To  string
	// Freed is in millicores or bytes of Of, and of disks what By counts; None for none.
	Freed    float64
	Resource qos.Resource
	// Criterion is what victims were ordered by; empty where there is no order.
	Criterion qos.Criterion
	// Grace is what a pod may take to end; nil where it does not.
	Grace  *time.Duration
	Reason string
	// Error is what kept it from being done.
	Error string
	// EventReason is the reason of the event; empty for none. It is on the pod, or on the node where there is none.
	EventReason string
	// Warning tells that the event is one.
	Warning bool
}

// toRecord is the action as a line of the audit file.
func (a *Action) toRecord() Record {
	r := Record{
		Action: a.Kind, Outcome: a.Outcome, Error: a.Error, Rule: a.Rule, AvoidanceAction: a.Action,
		Namespace: a.Pod.Namespace, Pod: a.Pod.Name, UID: a.Pod.UID, Container: a.Container, From: a.From, To: a.To, Reason: a.Reason,
	}
	switch a.Resource {
	case qos.CPU:
		r.FreesCores = new(a.Freed / milli)
	case qos.Memory:
		r.FreesBytes = &a.Freed
	case qos.Disks, qos.NoResource: // Nothing that can be added up.
	}
	if a.Criterion != "" {
		r.OrderedBy, r.Usage = a.Criterion, &a.Freed
		if a.Resource == qos.CPU {
			r.Usage = r.FreesCores
		}
	}
	if a.Grace != nil {
		r.GraceSeconds = new(a.Grace.Seconds())
	}
	return r
}

// throttleAction is a change of a container's limit of cpu.
func throttleAction(t *qos.Throttle, outcome Outcome) Action {
	a := Action{
		Kind: CPUThrottle, Outcome: outcome, Rule: t.Rule, Pod: t.Pod, Container: t.ContainerName, From: t.From.String(), To: t.To.String(),
		Freed: float64(t.Freed), Resource: qos.CPU, Reason: t.Reason,
	}
	if t.Freed < 0 {
		a.Kind = CPURestore
	}
	return a
}

// memoryThrottleAction is a change of a container's limit of memory.
func memoryThrottleAction(t *qos.MemoryThrottle, outcome Outcome) Action {
	a := Action{
		Kind: MemoryThrottle, Outcome: outcome, Rule: t.Rule, Pod: t.Pod, Container: t.ContainerName, From: t.From.String(), To: t.To.String(),
		Freed: float64(t.Freed), Resource: qos.Memory, Reason: t.Reason,
	}
	if t.Freed < 0 {
		a.Kind = MemoryRestore
	}
	return a
}

// evictionAction is a pod that has to go.
func evictionAction(e *qos.Eviction, outcome Outcome) Action {
	return Action{Kind: Evict, Outcome: outcome, Rule: e.Rule, Pod: e.Pod, Freed: e.Freed, Resource: e.Resource, Criterion: e.Criterion, Grace: &e.GracePeriod, Reason: e.Reason}
}
