// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// termination describes a pod that terminates or whose eviction was requested.
type termination struct {
	since       time.Time
	grace       time.Duration
	requested   bool // the outcome is not known yet
	terminating bool // was seen terminating
	absent      bool // was missing in the last observation
	cpu         units.MilliCPU
	memory      units.Bytes
}

// evictionPause is a time without evictions.
type evictionPause struct {
	from   time.Time
	span   time.Duration
	reason string
}

// BeginEviction records that an eviction was requested and its outcome is open. Until RecordEviction, RecordGone, RecordRefusal or
// RecordFailure is called the pod counts as terminating, so that a slow API server does not lead to another victim.
func (s *State) BeginEviction(e Eviction, at time.Time) {
	s.trackTermination(e.Pod, &termination{since: at, grace: e.GracePeriod, requested: true})
}

// RecordEviction records that a pod was evicted with the given grace period.
func (s *State) RecordEviction(pod PodRef, at time.Time, grace time.Duration) {
	s.evicted = append(s.evicted, at)
	delete(s.refused, pod.UID)
	s.trackTermination(pod, &termination{since: at, grace: grace})
}

// RecordGone records that a pod to be evicted no longer exists. It counts as terminating until the node is observed without it.
func (s *State) RecordGone(pod PodRef, at time.Time) {
	s.trackTermination(pod, &termination{since: at})
}

// RecordRefusal records that a pod may not be evicted now, as by a disruption budget: the next pod in order is evicted, and this one is
// retried later.
func (s *State) RecordRefusal(pod PodRef, at time.Time) {
	if s.refused == nil {
		s.refused = map[string]time.Time{}
	}

	s.refused[pod.UID] = at
	s.RecordFailure(pod)
}

// RecordFailure records that the request of BeginEviction failed for a reason unrelated to the pod, which stays a candidate.
func (s *State) RecordFailure(pod PodRef) {
	if v := s.terminating[pod.UID]; v != nil && v.requested {
		delete(s.terminating, pod.UID)
	}
}

// PauseEvictions prevents all evictions for a time, as until the cluster's budget allows more.
func (s *State) PauseEvictions(at time.Time, span time.Duration, why string) {
	s.pause = evictionPause{at, span, why}
}

// trackTermination records a termination and keeps the known use of the pod.
func (s *State) trackTermination(pod PodRef, v *termination) {
	if s.terminating == nil {
		s.terminating = map[string]*termination{}
	}

	if old := s.terminating[pod.UID]; old != nil {
		v.terminating = old.terminating
		v.cpu = old.cpu
		v.memory = old.memory
	}

	s.terminating[pod.UID] = v
}

// pauseReason returns why evictions are paused; empty if they are not.
func (s *State) pauseReason(now time.Time) string {
	s.pause.from = earlier(s.pause.from, now)
	if now.Sub(s.pause.from) >= s.pause.span {
		s.pause = evictionPause{}
	}

	return s.pause.reason
}

// recentEvictions returns the number of pods evicted within the window or being evicted.
func (s *State) recentEvictions() int {
	n := len(s.evicted)
	for _, v := range s.terminating {
		if v.requested {
			n++
		}
	}

	return n
}

// reconcilePods compares the recorded terminations with the observed pods.
func (s *State) reconcilePods(o *Observation, l Limits) {
	seen := make(map[string]bool, len(s.terminating))
	for i := range o.Pods {
		p := &o.Pods[i]
		if at, ok := s.refused[p.UID]; ok && absolute(o.At.Sub(at)) >= l.RefusalBackoff {
			delete(s.refused, p.UID)
		}
		if s.terminating[p.UID] == nil && p.Terminating {
			s.trackTermination(p.ref(), &termination{since: o.At, grace: p.Grace})
		}

		v := s.terminating[p.UID]
		if v == nil {
			continue
		}

		seen[p.UID] = true
		v.terminating = v.terminating || p.Terminating
		v.absent = false

		// An unmeasured use is taken as unchanged.
		if !p.UsedCPU.At.IsZero() {
			v.cpu = max(p.UsedCPU.Value, 0)
		}
		if !p.UsedMemory.At.IsZero() {
			v.memory = max(p.UsedMemory.Value, 0)
		}
	}

	for uid, v := range s.terminating {
		v.since = earlier(v.since, o.At)
		switch {
		case v.requested: // Until the outcome is known.
		case seen[uid] && !v.terminating && o.At.Sub(v.since) > l.RefusalBackoff:
			delete(s.terminating, uid) // It was evicted and does not terminate.
		case seen[uid]:
		case v.absent:
			delete(s.terminating, uid)
		default:
			// The last measurement covers some time before it was gone.
			v.absent = true
		}
	}

	s.evicted = slices.DeleteFunc(s.evicted, func(at time.Time) bool { return o.At.Sub(at) >= l.EvictionWindow })
	for i := range s.evicted {
		s.evicted[i] = earlier(s.evicted[i], o.At)
	}

	for uid := range s.refused {
		if !slices.ContainsFunc(o.Pods, func(p Pod) bool { return p.UID == uid }) {
			delete(s.refused, uid)
		}
	}
}

// pendingRelease returns how much of a resource terminating pods will release.
func (s *State) pendingRelease(r units.Resource, now time.Time, l Limits) (sum float64) {
	for _, v := range s.terminating {
		if now.Sub(v.since) > v.grace+l.StuckAfter {
			continue
		}

		if r == units.CPU {
			sum += float64(v.cpu)
		} else {
			sum += float64(v.memory)
		}
	}

	return sum
}

// anyTerminating reports whether a pod terminates within its expected time.
func (s *State) anyTerminating(now time.Time, l Limits) bool {
	for _, v := range s.terminating {
		if now.Sub(v.since) <= v.grace+l.StuckAfter {
			return true
		}
	}

	return false
}
