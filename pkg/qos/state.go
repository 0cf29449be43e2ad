// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import "time"

// State is what was seen and done before. It is not safe for concurrent use; the zero value is that of a start.
type State struct {
	rules   map[string]*ruleState
	quotas  book[Quota]
	highs   book[High]
	leaving map[string]*leaver
	refused map[string]time.Time // by the pod's UID: when it was refused
	evicted []time.Time
	hold    hold
	// gave is when something was given back last of which it was not known how much may be.
	gave time.Time
	// detector is there as long as a rule asks for interference.
	detector *detector
}

// Throttled tells the state that a throttle of a plan was carried out.
func (s *State) Throttled(t Throttle) {
	s.quotas.note(taken[Quota]{Pod: t.Pod, ContainerID: t.ContainerID, Original: t.Original, Set: t.To, Before: t.To + Quota(t.Frees), Step: t.Step})
}

// MemoryThrottled tells the state that a throttle of memory was carried out.
func (s *State) MemoryThrottled(t MemoryThrottle) {
	s.highs.note(taken[High]{Pod: t.Pod, ContainerID: t.ContainerID, Original: t.Original, Set: t.To, Before: t.To + High(t.Frees)})
}

// MemoryAsked tells the state that a throttle of memory is being carried out, which takes as long as the kernel reclaims: until
// MemoryThrottled tells it that it was, the new limit may be seen in force as well as the old one.
func (s *State) MemoryAsked(t MemoryThrottle) {
	if k := s.highs[t.ContainerID]; k != nil {
		k.asked = t.To
	}
}

// Throttles tells whether cpu is taken from a container.
func (s *State) Throttles(containerID string) bool { return s.quotas.has(containerID) }

// catchUp compares what was done with what is there now.
func (s *State) catchUp(o *Observation, l Limits) {
	s.quotas.catchUp(o, cpuThrottled())
	s.highs.catchUp(o, memoryThrottled())
	s.catchUpPods(o, l)
}

// earlier keeps times out of the future, where a clock that is set back puts them.
func earlier(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
