// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Size is what a workload is made of: requests and limits by container, or a number of replicas. What is absent is not
// spoken of.
type Size struct {
	Containers map[string]rightsize.Resources `json:"containers,omitempty"`
	Replicas   *int32                         `json:"replicas,omitempty"`
}

// amount is one of the numbers of a size, in millicores, bytes or replicas.
type amount struct {
	container string
	field     field
}

type field int

const (
	replicas field = iota
	cpuRequest
	cpuLimit
	memoryRequest
	memoryLimit
)

func (f field) limit() bool { return f == cpuLimit || f == memoryLimit }

// request is the one that must not be above a limit.
func (f field) request() field {
	if f == cpuLimit {
		return cpuRequest
	}
	return memoryRequest
}

// Clone is a copy that shares nothing.
func (s Size) Clone() Size {
	out := Size{}
	for _, a := range s.amounts() {
		v, _ := s.get(a)
		out.set(a, v)
	}
	for name := range s.Containers { // Those without any amount too.
		if _, ok := out.Containers[name]; !ok {
			out.addContainer(name)
		}
	}
	return out
}

func (s *Size) addContainer(name string) {
	if s.Containers == nil {
		s.Containers = map[string]rightsize.Resources{}
	}
	if _, ok := s.Containers[name]; !ok {
		s.Containers[name] = rightsize.Resources{}
	}
}

// Empty tells that a size says nothing.
func (s Size) Empty() bool { return len(s.amounts()) == 0 }

// amounts lists what a size speaks of, in a fixed order.
func (s Size) amounts() []amount {
	var out []amount
	if s.Replicas != nil {
		out = append(out, amount{field: replicas})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Containers)) {
		for f := cpuRequest; f <= memoryLimit; f++ {
			a := amount{name, f}
			if _, ok := s.get(a); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

func (s Size) get(a amount) (int64, bool) {
	if a.field == replicas {
		if s.Replicas == nil {
			return 0, false
		}
		return int64(*s.Replicas), true
	}
	r := s.Containers[a.container]
	switch a.field {
	case cpuRequest:
		return dereference(r.CPURequest)
	case cpuLimit:
		return dereference(r.CPULimit)
	case memoryRequest:
		return dereference(r.MemoryRequest)
	default:
		return dereference(r.MemoryLimit)
	}
}

func dereference[T series.MilliCPU | series.Bytes](p *T) (int64, bool) {
	if p == nil {
		return 0, false
	}
	return int64(*p), true
}

func (s *Size) set(a amount, v int64) {
	if a.field == replicas {
		n := int32(min(max(v, 0), 1<<31-1))
		s.Replicas = &n
		return
	}
	s.addContainer(a.container)
	r := s.Containers[a.container]
	cpu, memory := series.MilliCPU(v), series.Bytes(v)
	switch a.field {
	case cpuRequest:
		r.CPURequest = &cpu
	case cpuLimit:
		r.CPULimit = &cpu
	case memoryRequest:
		r.MemoryRequest = &memory
	default:
		r.MemoryLimit = &memory
	}
	s.Containers[a.container] = r
}

// Equal tells whether two sizes speak of the same amounts and give them the same values.
func (s Size) Equal(other Size) bool {
	mine, theirs := s.amounts(), other.amounts()
	if !slices.Equal(mine, theirs) {
		return false
	}
	for _, a := range mine {
		v, _ := s.get(a)
		if w, _ := other.get(a); v != w {
			return false
		}
	}
	return true
}

// contains tells whether a size gives every amount that the other speaks of its value.
func (s Size) contains(other Size) bool {
	for _, a := range other.amounts() {
		want, _ := other.get(a)
		if v, ok := s.get(a); !ok || v != want {
			return false
		}
	}
	return true
}

// restrictTo is the part of a size that is about the containers of another.
func (s Size) restrictTo(of Size) Size {
	out := s.Clone()
	maps.DeleteFunc(out.Containers, func(name string, _ rightsize.Resources) bool {
		_, ok := of.Containers[name]
		return !ok
	})
	if of.Replicas == nil {
		out.Replicas = nil
	}
	return out
}

// String is for messages: "app: cpu 500m, memory 1Gi".
func (s Size) String() string {
	var parts []string
	if s.Replicas != nil {
		parts = append(parts, fmt.Sprintf("%d replicas", *s.Replicas))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Containers)) {
		var of []string
		for f := cpuRequest; f <= memoryLimit; f++ {
			if v, ok := s.get(amount{name, f}); ok {
				of = append(of, f.text(v))
			}
		}
		if len(of) > 0 {
			parts = append(parts, name+": "+strings.Join(of, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

func (f field) text(v int64) string {
	switch f {
	case replicas:
		return fmt.Sprintf("%d replicas", v)
	case cpuRequest:
		return "cpu " + rightsize.FormatCPU(series.MilliCPU(v))
	case cpuLimit:
		return "cpu limit " + rightsize.FormatCPU(series.MilliCPU(v))
	case memoryRequest:
		return "memory " + rightsize.FormatMemory(series.Bytes(v))
	default:
		return "memory limit " + rightsize.FormatMemory(series.Bytes(v))
	}
}
