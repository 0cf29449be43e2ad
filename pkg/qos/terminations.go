// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// termination is a pod that is ending, or was asked to.
type termination struct {
	since       time.Time
	grace       time.Duration
	requested   bool // the answer is still out
	terminating bool // seen as terminating
	absent      bool // was missing in the last observation
	cpu         series.MilliCPU
	memory      series.Bytes
}

// evictionPause is a time without evictions.
type evictionPause struct {
	from   time.Time
	span   time.Duration
	reason string
}

// BeginEviction tells the state that an eviction of a plan is on its way and its answer still out: until Evicted, Gone, Refused or Failed tells
// it the pod counts as about to go, so that nobody else is chosen in its place because an API server is slow.
func (s *State) BeginEviction(e Eviction, at time.Time) {
	s.trackTermination(e.Pod, &termination{since: at, grace: e.GracePeriod, requested: true})
}

// RecordEviction tells the state that a pod was asked to go, and may take grace for it.
func (s *State) RecordEviction(pod PodRef, at time.Time, grace time.Duration) {
	s.evicted = append(s.evicted, at)
	delete(s.refused, pod.UID)
	s.trackTermination(pod, &termination{since: at, grace: grace})
}

// RecordGone tells the state that a pod that was asked to go is no more. Until the node is seen without it, it counts as about to go.
func (s *State) RecordGone(pod PodRef, at time.Time) {
	s.trackTermination(pod, &termination{since: at})
}

// RecordRefusal tells the state that a pod may not be evicted now, as by a disruption budget: the next in order is taken, and this one tried
// again later.
func (s *State) RecordRefusal(pod PodRef, at time.Time) {
	if s.refused == nil {
		s.refused = map[string]time.Time{}
	}
	s.refused[pod.UID] = at
	s.RecordFailure(pod)
}

// RecordFailure tells the state that what was Asked has come to nothing, for a reason that is not the pod's: it is chosen again.
func (s *State) RecordFailure(pod PodRef) {
	if v := s.terminating[pod.UID]; v != nil && v.requested {
		delete(s.terminating, pod.UID)
	}
}

// PauseEvictions lets no rule evict anybody for a time, such as until the cluster has a budget for it again.
func (s *State) PauseEvictions(at time.Time, span time.Duration, why string) {
	s.pause = evictionPause{at, span, why}
}

// trackTermination keeps what is known of the pod's use.
func (s *State) trackTermination(pod PodRef, v *termination) {
	if s.terminating == nil {
		s.terminating = map[string]*termination{}
	}
	if old := s.terminating[pod.UID]; old != nil {
		v.terminating, v.cpu, v.memory = old.terminating, old.cpu, old.memory
	}
	s.terminating[pod.UID] = v
}

// pauseReason says why nobody is evicted now, empty where somebody may be.
func (s *State) pauseReason(now time.Time) string {
	s.pause.from = earlier(s.pause.from, now)
	if now.Sub(s.pause.from) >= s.pause.span {
		s.pause = evictionPause{}
	}
	return s.pause.reason
}

// recentEvictions is how many pods were evicted within the window, or are being asked.
func (s *State) recentEvictions() int {
	n := len(s.evicted)
	for _, v := range s.terminating {
		if v.requested {
			n++
		}
	}
	return n
}

// reconcilePods compares who was to go with who is there.
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
		v.terminating, v.absent = v.terminating || p.Terminating, false
		// What is not measured any more is as much as it was.
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
		case v.requested: // Until the answer is there.
		case seen[uid] && !v.terminating && o.At.Sub(v.since) > l.RefusalBackoff:
			delete(s.terminating, uid) // It was asked to go and does not.
		case seen[uid]:
		case v.absent:
			delete(s.terminating, uid)
		default:
			// The last measurement covers some time in which it was still there.
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

// pendingRelease is how much of a resource pods that are ending will free.
func (s *State) pendingRelease(r Resource, now time.Time, l Limits) (sum float64) {
	for _, v := range s.terminating {
		if now.Sub(v.since) > v.grace+l.StuckAfter {
			continue
		}
		if r == CPU {
			sum += float64(v.cpu)
		} else {
			sum += float64(v.memory)
		}
	}
	return sum
}

// anyTerminating tells whether a pod is ending that is not stuck.
func (s *State) anyTerminating(now time.Time, l Limits) bool {
	for _, v := range s.terminating {
		if now.Sub(v.since) <= v.grace+l.StuckAfter {
			return true
		}
	}
	return false
}
