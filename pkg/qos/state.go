// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import "time"

// State is what was seen and done before. It is not safe for concurrent use; the zero value is that of a start.
type State struct {
	rules       map[string]*ruleState
	quotas      throttleRecords[Quota]
	highs       throttleRecords[MemoryHigh]
	terminating map[string]*termination
	refused     map[string]time.Time // by the pod's UID: when it was refused
	evicted     []time.Time
	pause       evictionPause
	// lastProbe is when something was given back last of which it was not known how much may be.
	lastProbe time.Time
	// detector is there as long as a rule asks for interference.
	detector *detector
}

// RecordThrottle tells the state that a throttle of a plan was carried out.
func (s *State) RecordThrottle(t Throttle) {
	s.quotas.record(throttleRecord[Quota]{Pod: t.Pod, ContainerID: t.ContainerID, Original: t.Original, Set: t.To, Before: t.To + Quota(t.Freed), Step: t.Step})
}

// RecordMemoryThrottle tells the state that a throttle of memory was carried out.
func (s *State) RecordMemoryThrottle(t MemoryThrottle) {
	s.highs.record(throttleRecord[MemoryHigh]{Pod: t.Pod, ContainerID: t.ContainerID, Original: t.Original, Set: t.To, Before: t.To + MemoryHigh(t.Freed)})
}

// BeginMemoryThrottle tells the state that a throttle of memory is being carried out, which takes as long as the kernel reclaims: until
// RecordMemoryThrottle tells it that it was, the new limit may be seen in force as well as the old one.
func (s *State) BeginMemoryThrottle(t MemoryThrottle) {
	if k := s.highs[t.ContainerID]; k != nil {
		k.pending = t.To
	}
}

// IsThrottled tells whether cpu is taken from a container.
func (s *State) IsThrottled(containerID string) bool { return s.quotas.contains(containerID) }

// reconcile compares what was done with what is there now.
func (s *State) reconcile(o *Observation, l Limits) {
	s.quotas.reconcile(o, cpuLimits())
	s.highs.reconcile(o, memoryLimits())
	s.reconcilePods(o, l)
}

// earlier keeps times out of the future, where a clock that is set back puts them.
func earlier(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
