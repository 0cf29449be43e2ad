// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Size is the size of a workload: requests and limits by container, or a number of replicas. Absent amounts are not managed.
type Size struct {
	Containers map[string]rightsize.Resources `json:"containers,omitempty"`
	Replicas   *int32                         `json:"replicas,omitempty"`
}

// amount identifies one number of a size, in millicores, bytes or replicas.
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

// request returns the request that belongs to a limit.
func (f field) request() field {
	if f == cpuLimit {
		return cpuRequest
	}

	return memoryRequest
}

// Clone returns a deep copy.
func (s Size) Clone() Size {
	out := Size{}
	for _, a := range s.amounts() {
		v, _ := s.get(a)
		out.set(a, v)
	}

	for name := range s.Containers { // Containers without any amount are kept.
		out.addContainer(name)
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

// Empty reports whether the size has no amounts.
func (s Size) Empty() bool { return len(s.amounts()) == 0 }

// selectsAny reports whether the size has a container, with or without amounts, or a number of replicas.
func (s Size) selectsAny() bool { return len(s.Containers) > 0 || s.Replicas != nil }

// amounts lists the amounts that are set, in a fixed order.
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
	r := s.Containers[a.container]
	switch a.field {
	case replicas:
		return dereference(s.Replicas)
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

func dereference[T int32 | units.MilliCPU | units.Bytes](p *T) (int64, bool) {
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
	cpu := units.MilliCPU(v)

	memory := units.Bytes(v)
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

// Equal reports whether both sizes set the same amounts to the same values.
func (s Size) Equal(other Size) bool {
	return slices.Equal(s.amounts(), other.amounts()) && s.contains(other)
}

// contains reports whether the size sets every amount of the other to the same value.
func (s Size) contains(other Size) bool {
	for _, a := range other.amounts() {
		want, _ := other.get(a)
		if v, ok := s.get(a); !ok || v != want {
			return false
		}
	}

	return true
}

// aboveLimit returns the first request that exceeds its limit, or "". The API server refuses pods with one.
func (s Size) aboveLimit() string {
	for _, a := range s.amounts() {
		if !a.field.limit() {
			continue
		}

		limit, _ := s.get(a)
		request := amount{a.container, a.field.request()}
		if v, ok := s.get(request); ok && v > limit {
			return fmt.Sprintf("%s of container %s is above its limit, %s", request.field.text(v), a.container, a.field.text(limit))
		}
	}

	return ""
}

// restrictTo returns the part of the size that concerns the containers, or the replicas, of another.
func (s Size) restrictTo(other Size) Size {
	out := s.Clone()
	maps.DeleteFunc(out.Containers, func(name string, _ rightsize.Resources) bool {
		_, ok := other.Containers[name]
		return !ok
	})

	if other.Replicas == nil {
		out.Replicas = nil
	}

	return out
}

// reduces reports whether an amount is smaller in the second size.
func reduces(from, to Size) bool {
	for _, a := range from.amounts() {
		before, _ := from.get(a)
		if after, ok := to.get(a); ok && after < before {
			return true
		}
	}

	return false
}

// String formats the size for messages: "app: cpu 500m, memory 1Gi".
func (s Size) String() string {
	var parts []string
	if s.Replicas != nil {
		parts = append(parts, replicas.text(int64(*s.Replicas)))
	}

	for _, name := range slices.Sorted(maps.Keys(s.Containers)) {
		var amounts []string
		for f := cpuRequest; f <= memoryLimit; f++ {
			if v, ok := s.get(amount{name, f}); ok {
				amounts = append(amounts, f.text(v))
			}
		}

		if len(amounts) > 0 {
			parts = append(parts, name+": "+strings.Join(amounts, ", "))
		}
	}

	return strings.Join(parts, "; ")
}

func (f field) text(v int64) string {
	switch f {
	case replicas:
		return units.FormatCount(v, "replica")
	case cpuRequest:
		return "cpu " + units.FormatCPU(units.MilliCPU(v))
	case cpuLimit:
		return "cpu limit " + units.FormatCPU(units.MilliCPU(v))
	case memoryRequest:
		return "memory " + units.FormatMemory(units.Bytes(v))
	default:
		return "memory limit " + units.FormatMemory(units.Bytes(v))
	}
}
