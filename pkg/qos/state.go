// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// State is what was seen and done before. It is not safe for concurrent use; the zero value is that of a start.
type State struct {
	rules   map[string]*ruleState
	taken   map[string]*Taken // by the container's id
	memory  map[string]*MemoryTaken
	leaving map[string]*leaver
	refused map[string]time.Time // by the pod's UID: when it was refused
	evicted []time.Time
	hold    hold
	// gave is when something was given back last of which it was not known how much may be.
	gave time.Time
	// detector is there as long as a rule asks for interference.
	detector *detector
}

// Taken is what a container was throttled by, to be given back.
type Taken struct {
	Pod         PodRef
	ContainerID string
	// Original is the quota before, Set the one that was written.
	Original, Set Quota
	// Before is the use when it was throttled first, Step the last step.
	Before series.MilliCPU
	Step   series.Ratio

	missed int
}

// forgetAfter is the number of observations without a container after which it is gone for good.
const forgetAfter = 60

// Throttled tells the state that a throttle of a plan was carried out.
func (s *State) Throttled(t Throttle) {
	if t.To == t.Original {
		delete(s.taken, t.ContainerID)
		return
	}
	if s.taken == nil {
		s.taken = map[string]*Taken{}
	}
	k := s.taken[t.ContainerID]
	if k == nil {
		k = &Taken{Pod: t.Pod, ContainerID: t.ContainerID, Original: t.Original, Before: t.Frees + series.MilliCPU(t.To)}
		s.taken[t.ContainerID] = k
	}
	k.Set, k.missed = t.To, 0
	if t.Step > 0 {
		k.Step = t.Step
	}
}

// Resume takes over what an agent before this one had taken, as its journal says: it is given back like one's own.
func (s *State) Resume(holdings []Taken) {
	if s.taken == nil {
		s.taken = map[string]*Taken{}
	}
	for _, k := range holdings {
		s.taken[k.ContainerID] = &k
	}
}

// Holdings are the containers that are throttled, in the order of their ids.
func (s *State) Holdings() []Taken {
	out := make([]Taken, 0, len(s.taken))
	for _, k := range s.taken {
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b Taken) int {
		if a.ContainerID < b.ContainerID {
			return -1
		}
		return 1
	})
	return out
}

// Throttles tells whether cpu is taken from a container.
func (s *State) Throttles(containerID string) bool { return s.taken[containerID] != nil }

// catchUp compares what was done with what is there now.
func (s *State) catchUp(o *Observation, l Limits) {
	s.catchUpContainers(o)
	s.catchUpMemory(o)
	s.catchUpPods(o, l)
}

// catchUpContainers gives up what somebody else has changed: a quota that the kubelet sets, as for a resize, is the new original.
func (s *State) catchUpContainers(o *Observation) {
	if len(s.taken) == 0 {
		return
	}
	for _, k := range s.taken {
		k.missed++
	}
	for i := range o.Pods {
		for _, c := range o.Pods[i].Containers {
			k := s.taken[c.ID]
			if k == nil {
				continue
			}
			k.missed = 0
			if c.Quota != 0 && !same(c.Quota, k.Set) {
				delete(s.taken, c.ID)
			}
		}
	}
	for id, k := range s.taken {
		if k.missed > forgetAfter {
			delete(s.taken, id)
		}
	}
}

// same tells whether two quotas are equal up to the rounding of a millicore.
func same(a, b Quota) bool { return a == b || a != Unlimited && b != Unlimited && a-b <= 1 && b-a <= 1 }

// earlier keeps times out of the future, where a clock that is set back puts them.
func earlier(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
