// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import "time"

// State is the memory between calls of Decide. It is not safe for concurrent use; the zero value is ready.
type State struct {
	rules       map[string]*ruleState
	quotas      throttleRecords[Quota]
	highs       throttleRecords[MemoryHigh]
	terminating map[string]*termination
	refused     map[string]time.Time // time of the refusal by pod UID
	evicted     []time.Time
	pause       evictionPause
	// lastProbe is the last time a limit was raised without a known headroom.
	lastProbe time.Time
	// detector is nil unless a rule uses interference.
	detector *detector
}

// RecordThrottle records that a throttle was executed.
func (s *State) RecordThrottle(t Throttle) {
	s.quotas.record(throttleRecord[Quota]{Pod: t.Pod, ContainerID: t.ContainerID, Original: t.Original, Set: t.To, Before: t.To + Quota(t.Freed), Step: t.Step})
}

// RecordMemoryThrottle records that a memory throttle was executed.
func (s *State) RecordMemoryThrottle(t MemoryThrottle) {
	s.highs.record(throttleRecord[MemoryHigh]{Pod: t.Pod, ContainerID: t.ContainerID, Original: t.Original, Set: t.To, Before: t.To + MemoryHigh(t.Freed)})
}

// BeginMemoryThrottle records that a memory throttle is being executed, which takes as long as the kernel reclaims. Until
// RecordMemoryThrottle the old or the new limit may be in force.
func (s *State) BeginMemoryThrottle(t MemoryThrottle) {
	if k := s.highs[t.ContainerID]; k != nil {
		k.pending = t.To
	}
}

// IsThrottled reports whether the CPU of a container is throttled.
func (s *State) IsThrottled(containerID string) bool { return s.quotas.contains(containerID) }

// IsMemoryThrottled reports whether the memory of a container is throttled.
func (s *State) IsMemoryThrottled(containerID string) bool { return s.highs.contains(containerID) }

// reconcile compares the recorded actions with the observation.
func (s *State) reconcile(o *Observation, l Limits) {
	s.quotas.reconcile(o, cpuLimits())
	s.highs.reconcile(o, memoryLimits())
	s.reconcilePods(o, l)
}

// earlier returns t, or now if t is later because the clock was set back.
func earlier(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
