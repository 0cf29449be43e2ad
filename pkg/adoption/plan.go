// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"
)

// PodResize is the resize of one running pod in place.
type PodResize struct {
	Pod, UID string
	From, To Size
	// Restarts reports whether the resize restarts a container of the pod.
	Restarts bool
}

// Event is recorded as a Kubernetes event on the workload and its Recommendation.
type Event struct {
	Warning bool
	Reason  string
	Text    string
}

// Plan is the result of a decision. The state is stored before anything else of the plan is carried out.
type Plan struct {
	State State
	// Resizes and Evictions are the pods to change now.
	Resizes   []PodResize
	Evictions []Eviction
	// Targets of the autoscaler to write before any pod is changed.
	Targets []Target
	// Replicas is the number to scale to; nil leaves it.
	Replicas *int32
	// Template is the size for the pod template; nil leaves it unchanged. RestoreTemplate returns the fields to the
	// owner.
	Template        *Size
	RestoreTemplate bool
	Events          []Event
	// Summary describes the progress in one line; Remarks concern single pods.
	Summary string
	Remarks []string
	// newPodsRemark says why new pods do not get the current size.
	newPodsRemark string
	// RequeueAfter is the time until the next decision; 0 waits for a change of the workload.
	RequeueAfter time.Duration
}

// withEvent returns the plan with one more event.
func (p Plan) withEvent(warning bool, reason, format string, args ...any) Plan {
	p.Events = append(p.Events, Event{Warning: warning, Reason: reason, Text: fmt.Sprintf(format, args...)})
	return p
}

// withSummary returns the plan with another summary.
func (p Plan) withSummary(format string, args ...any) Plan {
	p.Summary = fmt.Sprintf(format, args...)
	return p
}

// withRequeue returns the plan with the shorter of both waits; 0 is no wait.
func (p Plan) withRequeue(after time.Duration) Plan {
	p.RequeueAfter = shorterWait(p.RequeueAfter, after)
	return p
}

// withChanges returns the plan with the changes of pods.
func (p Plan) withChanges(c podChanges) Plan {
	p.Resizes = c.resizes
	p.Evictions = c.evictions
	p.Replicas = c.replicas
	p.Remarks = c.remarks

	return p.withRequeue(c.requeueAfter)
}

// withTargets returns the plan with the autoscaler targets that match the requests after its resizes, and reports whether all
// targets have their original value.
func (p Plan) withTargets(in Input) (next Plan, original bool) {
	if p.State.Phase == Untouched || p.State.Phase == Stopped {
		return p, true
	}

	p.State.AdjustedTargets, p.Targets, original = adjustTargets(in, p.State, p.Resizes)
	return p, original
}

func shorterWait(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}

	return a
}

// maxRemarks bounds the remarks of a plan.
const maxRemarks = 10

// podChanges are the changes that resize the pods of a workload.
type podChanges struct {
	resizes   []PodResize
	evictions []Eviction
	replicas  *int32
	remarks   []string
	// remaining counts the pods that do not have the size yet, excluded those that cannot get it.
	remaining    int
	excluded     int
	requeueAfter time.Duration
}

func (c *podChanges) remarkf(format string, args ...any) {
	if len(c.remarks) < maxRemarks {
		c.remarks = append(c.remarks, fmt.Sprintf(format, args...))
	}
}

// excludef adds a remark on a pod that cannot get the size now.
func (c *podChanges) excludef(format string, args ...any) {
	c.excluded++
	c.remarkf(format, args...)
}

// merge returns both changes in one.
func (c podChanges) merge(other podChanges) podChanges {
	c.resizes = append(c.resizes, other.resizes...)
	c.evictions = append(c.evictions, other.evictions...)
	c.remarks = append(c.remarks, other.remarks...)
	c.remarks = c.remarks[:min(len(c.remarks), maxRemarks)]
	c.remaining += other.remaining
	c.excluded += other.excluded
	c.requeueAfter = shorterWait(c.requeueAfter, other.requeueAfter)

	return c
}
