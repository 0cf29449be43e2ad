// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Reach selects which pods get a size, and how. New pods get it at creation with every reach.
type Reach string

const (
	// InPlace resizes running pods in place.
	InPlace Reach = ""
	// NewPods leaves running pods as they are.
	NewPods Reach = "NewPods"
	// Recreate evicts running pods, so that their replacements get the size.
	Recreate Reach = "Recreate"
	// InPlaceOrRecreate resizes in place, and evicts pods that can never get their size that way.
	InPlaceOrRecreate Reach = "InPlaceOrRecreate"
)

// Eviction is the eviction of a pod whose replacement has another size.
type Eviction struct {
	Pod, UID string
	From, To Size
	Reason   string
}

const (
	// defaultMinReplicas is the number of pods that must run before one is evicted, unless Input.MinReplicas overrides it. It is the
	// default of VerticalPodAutoscaler: the only pod of a workload is not evicted to become smaller.
	defaultMinReplicas = 2
	// webhookDelay is the time until the webhook for new pods reads a stored size. No pod is evicted earlier, and
	// pods created earlier may still be evicted.
	webhookDelay = 3 * time.Second
)

// replacementSize returns the size that a replacement of the pod would get, or the reason why it would get none.
func (p Pod) replacementSize(goal Size) (to Size, reason string) {
	to = p.size()
	for _, c := range p.Containers {
		for f := cpuRequest; f <= memoryLimit; f++ {
			if v, ok := goal.get(amount{c.Name, f}); ok {
				to.set(amount{c.Name, f}, v)
			}
		}
	}

	switch {
	case p.KeepsQOSClass(p.withSize(to)):
		return to, ""
	case p.Guaranteed():
		return p.size(), "it would no longer be guaranteed its resources"
	}

	return p.size(), "its QoS class would change"
}

// targetSize returns the size of a running pod with this reach, or the reason why it has none.
func (s State) targetSize(p Pod, goal Size) (to Size, reason string) {
	switch s.Reach {
	case NewPods:
		return p.size(), "only new pods get it"
	case Recreate:
		return p.replacementSize(goal)
	default:
		return p.InPlaceSize(goal)
	}
}

// untouchedReason returns why no running pod is changed now, or "".
func untouchedReason(in Input, s State) string {
	switch {
	case s.Reach == NewPods:
		return "only new pods get it"
	case s.Reach == Recreate && s.Phase == Withdrawing:
		return "new pods get the size of their template" // Restoring a size is no reason for an eviction.
	case in.MinReplicas > 0 && len(in.Pods) < int(in.MinReplicas):
		return fmt.Sprintf("no pod is touched with fewer than %d running: %s now", in.MinReplicas, units.FormatCount(len(in.Pods), "pod"))
	}

	return ""
}

// planRecreation evicts the pods that do not have the goal.
func planRecreation(in Input, s State, goal Size) podChanges {
	var changes podChanges
	var all []Eviction
	for _, p := range podsByAge(in.Pods) {
		to, reason := p.replacementSize(goal)
		switch {
		case p.NotResizable != "":
			changes.excludeUnresizable(s, p, goal)
		case reason != "":
			changes.excludef("pod %s: %s", p.Name, reason)
		case p.size().Equal(to):
		case !s.isKnownSize(p):
			changes.excludef(unknownSizeRemark, p.Name, p.size().restrictTo(goal))
		case changes.evictable(in, s, p):
			all = append(all, newEviction(p, goal, to, "the update mode is Recreate"))
		}
	}

	changes.remaining = len(all)
	return changes.merge(limitEvictions(in, s, all))
}

// planUnresizable evicts, if the reach allows it, the pods that can never get the goal in place.
func planUnresizable(in Input, s State, goal Size) podChanges {
	var changes podChanges
	if s.Reach != InPlaceOrRecreate || s.Phase == Withdrawing {
		return changes
	}

	var all []Eviction
	for _, p := range podsByAge(in.Pods) {
		to, obstacle := s.evictionReason(p, goal)
		if obstacle != "" && changes.evictable(in, s, p) {
			all = append(all, newEviction(p, goal, to, "not possible in place: "+obstacle))
		}
	}

	changes.remaining = len(all)
	return changes.merge(limitEvictions(in, s, all))
}

// evictionReason returns the size of a replacement of the pod, and why the pod has to be evicted to get the goal; "" if it has not, or if its size is not Crane's.
func (s State) evictionReason(p Pod, goal Size) (to Size, obstacle string) {
	to, reason := p.replacementSize(goal)
	if p.NotResizable != "" || reason != "" || !s.isKnownSize(p) {
		return to, ""
	}

	return to, p.inPlaceObstacle(goal, to)
}

// inPlaceObstacle returns why the pod can never get the goal in place although a replacement with size to could have it, or "".
func (p Pod) inPlaceObstacle(goal, to Size) string {
	inPlace, obstacle := p.InPlaceSize(goal)
	if obstacle == "" && p.Refused != "" && !p.RefusedOnAnyNode && p.RefusedSize.Equal(inPlace.restrictTo(goal)) {
		obstacle = p.Refused
	}

	switch {
	case obstacle != "" && p.size().Equal(to):
		return ""
	case obstacle != "":
		return obstacle
	case p.ResizeStatus == ResizeInfeasible && p.size().Equal(inPlace):
		return "its node can never provide " + to.restrictTo(goal).String()
	}

	return "" // A resize in place is possible, or the next one may be.
}

func newEviction(p Pod, goal, to Size, reason string) Eviction {
	return Eviction{
		Pod:    p.Name,
		UID:    p.UID,
		From:   p.size().restrictTo(goal),
		To:     to.restrictTo(goal),
		Reason: reason,
	}
}

// evictable reports whether a pod may be evicted. One that was created after the size was stored, and did not get it, shows that its replacement
// would not get it either.
func (c *podChanges) evictable(in Input, s State, p Pod) bool {
	if p.Protected != "" {
		c.excludef("pod %s is not evicted: %s", p.Name, p.Protected)
		return false
	}

	if createdBeforeChange(in, s, p) {
		return true
	}

	c.excludef("pod %s was created without the adopted size: the webhook for new pods did not change it, so it is not evicted", p.Name)
	return false
}

// createdBeforeChange reports whether the pod is older than the moment from which the webhook for new pods applied the size.
func createdBeforeChange(in Input, s State, p Pod) bool {
	return p.Created.Before(changedAt(in, s).Add(webhookDelay - time.Second))
}

// newestReplacement returns the last pod that was created since the current size was stored, and whether it has that size; nil without one.
func (s State) newestReplacement(in Input) (newest *Pod, hasSize bool) {
	for i := range in.Pods {
		p := &in.Pods[i]
		if createdBeforeChange(in, s, *p) || newest != nil && p.Created.Before(newest.Created) {
			continue
		}

		newest = p
		to, reason := p.replacementSize(s.raisedSize(*p, s.Current, in.Now))
		hasSize = reason == "" && p.size().Equal(to)
	}

	return newest, hasSize
}

// changedAt returns when the current size was stored.
func changedAt(in Input, s State) time.Time {
	given, wasGiven := s.NewPodSize()
	before, wasGivenBefore := in.State.NewPodSize()
	if !s.Current.Equal(in.State.Current) || in.State.Phase == Untouched || wasGiven && (!wasGivenBefore || !given.Equal(before)) {
		return in.Now
	}

	if s.ChangedAt.IsZero() {
		return s.PhaseSince
	}

	return s.ChangedAt
}

// limitEvictions returns the evictions that are allowed now: at most Policy.PodsAtOnce and what the disruption budgets leave, one until its
// replacement has the size, and ready pods only while all pods are ready.
func limitEvictions(in Input, s State, all []Eviction) podChanges {
	var changes podChanges
	if len(all) == 0 {
		return changes
	}

	changes.requeueAfter = in.Policy.PollInterval
	minReplicas := int(in.MinReplicas)
	running := len(in.Pods)

	if minReplicas == 0 {
		minReplicas = defaultMinReplicas
	}

	switch {
	case running < minReplicas:
		changes.remarkf("no pod is evicted with fewer than %d running: %s now", minReplicas, units.FormatCount(running, "pod"))
		return changes
	case in.RolloutInProgress || running < int(in.DesiredReplicas):
		changes.remarkf("a roll-out is in progress, or a pod is missing: none is evicted until that is over")
		return changes
	case !s.givesNewPods(s.Current) && !s.Current.Equal(s.Original):
		changes.remarkf("no pod is evicted while new pods do not get the size")
		return changes
	case in.Now.Before(changedAt(in, s).Add(webhookDelay)):
		changes.requeueAfter = shorterWait(in.Policy.PollInterval, webhookDelay)
		return changes
	}

	limit := podsAtOnce(in)
	switch replacement, hasSize := s.newestReplacement(in); {
	case replacement == nil:
		limit = 1 // Its replacement shows whether new pods get the size.
	case !hasSize:
		changes.remarkf("no more pods are evicted until a new one gets the adopted size: pod %s was created with %s", replacement.Name,
			replacement.size().restrictTo(s.Current))
		return changes
	}

	if in.DisruptionsAllowed >= 0 {
		limit = min(limit, in.DisruptionsAllowed)
	}

	// While a pod is not ready, no ready pod is evicted.
	ready := map[string]bool{}

	allReady := true
	for _, p := range in.Pods {
		ready[p.UID] = p.Ready
		allReady = allReady && p.Ready
	}

	for _, e := range all {
		if len(changes.evictions) < limit && (allReady || !ready[e.UID]) {
			changes.evictions = append(changes.evictions, e)
		}
	}

	if len(changes.evictions) < len(all) {
		changes.remarkf("more pods are evicted when all others are ready and the disruption budgets allow it")
	}

	return changes
}
