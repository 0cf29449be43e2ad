// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"maps"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultMaxPods is the kubelet's default.
const DefaultMaxPods = 110

// maxMaxPods bounds MaxPods by the addresses in a node's /24.
const maxMaxPods = 250

// evictionReserve is the kubelet's default hard threshold of memory.available, which is subtracted from allocatable.
const evictionReserve = 100 << 20

// NodeSpec describes one simulated node.
type NodeSpec struct {
	// Name is the name of the Node object, a DNS subdomain.
	Name string
	// CPU and Memory are the node's capacity.
	CPU, Memory resource.Quantity
	// ReservedCPU and ReservedMemory are subtracted from allocatable. At least 100 MiB of memory are reserved, the
	// kubelet's default eviction threshold.
	ReservedCPU, ReservedMemory resource.Quantity
	// MaxPods bounds the pods of the node, up to 250; 0 means 110.
	MaxPods int
	// Labels are added to the default labels.
	Labels map[string]string
	// Taints are the taints of the Node object.
	Taints []corev1.Taint
	// StaticCPU runs the static CPU manager policy, under which a CPU resize of a Guaranteed pod is infeasible.
	StaticCPU bool
}

// Validate returns an error for invalid specifications.
func (s NodeSpec) Validate() error {
	if msgs := validation.IsDNS1123Subdomain(s.Name); len(msgs) > 0 {
		return fmt.Errorf("node %q: name: %s", s.Name, msgs[0])
	}
	if s.CPU.Sign() <= 0 || s.Memory.Sign() <= 0 {
		return fmt.Errorf("node %s: cpu %s and memory %s must be positive", s.Name, s.CPU.String(), s.Memory.String())
	}
	if s.MaxPods < 0 || s.MaxPods > maxMaxPods {
		return fmt.Errorf("node %s: maxPods %d is not in 0..%d", s.Name, s.MaxPods, maxMaxPods)
	}
	if s.ReservedCPU.Sign() < 0 || s.ReservedMemory.Sign() < 0 {
		return fmt.Errorf("node %s: a reserve is negative", s.Name)
	}
	alloc := s.Allocatable()
	if alloc.Cpu().Sign() <= 0 || alloc.Memory().Sign() <= 0 {
		return fmt.Errorf("node %s: nothing is left after the reserves (cpu %s, memory %s)", s.Name, alloc.Cpu(), alloc.Memory())
	}
	return nil
}

// Capacity returns the capacity of the Node object.
func (s NodeSpec) Capacity() corev1.ResourceList {
	pods := s.MaxPods
	if pods == 0 {
		pods = DefaultMaxPods
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              s.CPU.DeepCopy(),
		corev1.ResourceMemory:           s.Memory.DeepCopy(),
		corev1.ResourcePods:             *resource.NewQuantity(int64(pods), resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(100<<30, resource.BinarySI),
	}
}

// Allocatable returns the capacity minus the reserves.
func (s NodeSpec) Allocatable() corev1.ResourceList {
	list := s.Capacity()
	cpu := s.CPU.DeepCopy()
	cpu.Sub(s.ReservedCPU)
	mem := s.Memory.DeepCopy()
	reserve := s.ReservedMemory.DeepCopy()
	if reserve.Value() < evictionReserve {
		reserve = *resource.NewQuantity(evictionReserve, resource.BinarySI)
	}
	mem.Sub(reserve)
	list[corev1.ResourceCPU], list[corev1.ResourceMemory] = cpu, mem
	return list
}

// AllLabels returns the labels of the Node object: those that every kubelet sets, overridden by the spec's.
func (s NodeSpec) AllLabels() map[string]string {
	all := map[string]string{
		corev1.LabelHostname: s.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		corev1.LabelInstanceTypeStable: fmt.Sprintf("sim-%dc-%dg", s.CPU.Value(), s.Memory.Value()>>30),
	}
	maps.Copy(all, s.Labels)
	return all
}
