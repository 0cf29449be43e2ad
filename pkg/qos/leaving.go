// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// leaver is a pod that is ending, or was asked to.
type leaver struct {
	since  time.Time
	grace  time.Duration
	asked  bool // the answer is still out
	ending bool // seen as terminating
	gone   bool // was missing in the last observation
	cpu    series.MilliCPU
	memory series.Bytes
}

// hold is a time without evictions.
type hold struct {
	from time.Time
	span time.Duration
	why  string
}

// Asked tells the state that an eviction of a plan is on its way and its answer still out: until Evicted, Gone, Refused or Failed tells
// it the pod counts as about to go, so that nobody else is chosen in its place because an API server is slow.
func (s *State) Asked(e Eviction, at time.Time) {
	s.leave(e.Pod, &leaver{since: at, grace: e.Takes, asked: true})
}

// Evicted tells the state that a pod was asked to go, and may take grace for it.
func (s *State) Evicted(pod PodRef, at time.Time, grace time.Duration) {
	s.evicted = append(s.evicted, at)
	delete(s.refused, pod.UID)
	s.leave(pod, &leaver{since: at, grace: grace})
}

// Gone tells the state that a pod that was asked to go is no more. Until the node is seen without it, it counts as about to go.
func (s *State) Gone(pod PodRef, at time.Time) { s.leave(pod, &leaver{since: at}) }

// Refused tells the state that a pod may not be evicted now, as by a disruption budget: the next in order is taken, and this one tried
// again later.
func (s *State) Refused(pod PodRef, at time.Time) {
	if s.refused == nil {
		s.refused = map[string]time.Time{}
	}
	s.refused[pod.UID] = at
	s.Failed(pod)
}

// Failed tells the state that what was Asked has come to nothing, for a reason that is not the pod's: it is chosen again.
func (s *State) Failed(pod PodRef) {
	if v := s.leaving[pod.UID]; v != nil && v.asked {
		delete(s.leaving, pod.UID)
	}
}

// HoldEvictions lets no rule evict anybody for a time, such as until the cluster has a budget for it again.
func (s *State) HoldEvictions(at time.Time, span time.Duration, why string) {
	s.hold = hold{at, span, why}
}

// leave keeps what is known of the pod's use.
func (s *State) leave(pod PodRef, v *leaver) {
	if s.leaving == nil {
		s.leaving = map[string]*leaver{}
	}
	if old := s.leaving[pod.UID]; old != nil {
		v.ending, v.cpu, v.memory = old.ending, old.cpu, old.memory
	}
	s.leaving[pod.UID] = v
}

// held says why nobody is evicted now, empty where somebody may be.
func (s *State) held(now time.Time) string {
	s.hold.from = earlier(s.hold.from, now)
	if now.Sub(s.hold.from) >= s.hold.span {
		s.hold = hold{}
	}
	return s.hold.why
}

// recent is how many pods were evicted within the window, or are being asked.
func (s *State) recent() int {
	n := len(s.evicted)
	for _, v := range s.leaving {
		if v.asked {
			n++
		}
	}
	return n
}

// catchUpPods compares who was to go with who is there.
func (s *State) catchUpPods(o *Observation, l Limits) {
	seen := make(map[string]bool, len(s.leaving))
	for i := range o.Pods {
		p := &o.Pods[i]
		if at, ok := s.refused[p.UID]; ok && absolute(o.At.Sub(at)) >= l.RetryRefused {
			delete(s.refused, p.UID)
		}
		if s.leaving[p.UID] == nil && p.Terminating {
			s.leave(p.ref(), &leaver{since: o.At, grace: p.Grace})
		}
		v := s.leaving[p.UID]
		if v == nil {
			continue
		}
		seen[p.UID] = true
		v.ending, v.gone = v.ending || p.Terminating, false
		// What is not measured any more is as much as it was.
		if !p.UsedCPU.At.IsZero() {
			v.cpu = max(p.UsedCPU.Value, 0)
		}
		if !p.UsedMemory.At.IsZero() {
			v.memory = max(p.UsedMemory.Value, 0)
		}
	}
	for uid, v := range s.leaving {
		v.since = earlier(v.since, o.At)
		switch {
		case v.asked: // Until the answer is there.
		case seen[uid] && !v.ending && o.At.Sub(v.since) > l.RetryRefused:
			delete(s.leaving, uid) // It was asked to go and does not.
		case seen[uid]:
		case v.gone:
			delete(s.leaving, uid)
		default:
			// The last measurement covers some time in which it was still there.
			v.gone = true
		}
	}
	s.evicted = slices.DeleteFunc(s.evicted, func(at time.Time) bool { return o.At.Sub(at) >= l.Window })
	for i := range s.evicted {
		s.evicted[i] = earlier(s.evicted[i], o.At)
	}
	for uid := range s.refused {
		if !slices.ContainsFunc(o.Pods, func(p Pod) bool { return p.UID == uid }) {
			delete(s.refused, uid)
		}
	}
}

// going is how much of a resource pods that are ending will free.
func (s *State) going(r Resource, now time.Time, l Limits) (sum float64) {
	for _, v := range s.leaving {
		if now.Sub(v.since) > v.grace+l.Stuck {
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

// anyGoing tells whether a pod is ending that is not stuck.
func (s *State) anyGoing(now time.Time, l Limits) bool {
	for _, v := range s.leaving {
		if now.Sub(v.since) <= v.grace+l.Stuck {
			return true
		}
	}
	return false
}
