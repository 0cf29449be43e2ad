// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// PodRequest is the request of one pod as the scheduler counts it: the sum of the containers that run side by side, or the
// request of an init container together with the sidecars that started before it, whichever is larger, for each resource.
// Source: kubernetes.io/docs/concepts/workloads/pods/init-containers (resource sharing within containers), with sidecars as
// in KEP-753. Overhead and pod-level resources are not included.
type PodRequest struct {
	CPUNow, CPUAfter       units.MilliCPU
	MemoryNow, MemoryAfter units.Bytes
	// CPUInitContainer and MemoryInitContainer name the init container that requests more than all other containers
	// together, now or after the change; empty if none does.
	CPUInitContainer, MemoryInitContainer string

	// cpu and memory are the excess of that init container.
	cpu, memory initExcess
}

type initExcess struct {
	now, after int64
	isKnown    bool
}

// String names the init containers that determine the request of the pod; empty if none does.
func (p PodRequest) String() string {
	text := ""
	add := func(resource, initContainer, now, after string) {
		if initContainer == "" {
			return
		}

		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("the pod as a whole requests %s of %s -> %s, as its init container %s asks for more than the others together", now, resource, after, initContainer)
	}

	add("cpu", p.CPUInitContainer, units.FormatCPU(p.CPUNow), units.FormatCPU(p.CPUAfter))
	add("memory", p.MemoryInitContainer, units.FormatMemory(p.MemoryNow), units.FormatMemory(p.MemoryAfter))
	return text
}

// podRequest returns the requests of a pod now and after a plan. Resources without a number stay unchanged.
func podRequest(all []Container, plan Plan) PodRequest {
	found := make(map[string]rightsize.Recommendation, len(plan.Containers))
	for _, r := range plan.Containers {
		found[r.Container] = r
	}

	var cpu, memory podSum
	for _, c := range all {
		r, sized := found[c.Name]
		addTo(&cpu, c, c.Current.CPURequest, r.Target.CPURequest, sized && r.CPU.Status == rightsize.Ready)
		addTo(&memory, c, c.Current.MemoryRequest, r.Target.MemoryRequest, sized && r.Memory.Status == rightsize.Ready)
	}

	return PodRequest{
		CPUNow:              units.MilliCPU(max(cpu.now, cpu.initNow)),
		CPUAfter:            units.MilliCPU(max(cpu.after, cpu.initAfter)),
		CPUInitContainer:    cpu.initContainer(),
		cpu:                 cpu.excess(),
		MemoryNow:           units.Bytes(max(memory.now, memory.initNow)),
		MemoryAfter:         units.Bytes(max(memory.after, memory.initAfter)),
		MemoryInitContainer: memory.initContainer(),
		memory:              memory.excess(),
	}
}

// podSum sums one resource of a pod.
type podSum struct {
	// now and after are the sums of the containers that run side by side; initNow and initAfter are the largest requests of
	// an init container.
	now, after, initNow, initAfter int64
	sidecarsNow, sidecarsAfter     int64
	// nowBy and afterBy name these init containers.
	nowBy, afterBy string
	unknown        bool
}

func addTo[T units.MilliCPU | units.Bytes](s *podSum, c Container, now, target *T, ready bool) {
	before := int64(0)
	if now != nil {
		before = max(0, int64(*now))
	}

	after := before
	if ready && target != nil {
		after = int64(*target)
	}

	// An init container runs beside the sidecars that started before it, and before all other containers.
	if c.Init {
		if v := s.sidecarsNow + before; before > 0 && v > s.initNow {
			s.initNow = v
			s.nowBy = c.Name
		}

		if v := s.sidecarsAfter + after; after > 0 && v > s.initAfter {
			s.initAfter = v
			s.afterBy = c.Name
		}

		return
	}

	s.unknown = s.unknown || before == 0 || !ready
	s.now += before
	s.after += after
	if c.Sidecar {
		s.sidecarsNow += before
		s.sidecarsAfter += after
	}
}

func (s podSum) excess() initExcess {
	return initExcess{now: max(0, s.initNow-s.now), after: max(0, s.initAfter-s.after), isKnown: !s.unknown}
}

func (s podSum) initContainer() string {
	switch {
	case s.initAfter > s.after:
		return s.afterBy
	case s.initNow > s.now:
		return s.nowBy
	}

	return ""
}

// meanPods returns the mean number of running pods of a job since its first run in the window: the observed container time
// of all pods divided by the elapsed time. It is 0 for other workloads. A run that is shorter than a step of the history
// counts as a whole step.
func (in Input) meanPods() float64 {
	maxPods := 0.0
	for _, c := range in.Containers {
		if !c.Job || c.Init {
			continue
		}

		days := c.Profile.Window(in.Now, max(in.Policy.CPU.Window, in.Policy.Memory.Window))
		if len(days) == 0 {
			continue
		}

		ran := 0.0
		for _, d := range days {
			ran += max(d.CPUTime, d.MemoryTime)
		}

		passed := max(in.Now.Sub(days[0].Day.Start()), time.Hour)
		maxPods = max(maxPods, ran/passed.Seconds())
	}

	return maxPods
}
