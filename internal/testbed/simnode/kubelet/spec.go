// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"maps"
	"runtime"
	"time"

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
	list[corev1.ResourceCPU] = cpu
	list[corev1.ResourceMemory] = mem

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

// Timing contains every duration of the model. Most take longer in real clusters; the defaults are short so that
// scenarios can be watched. See DefaultTiming for values and reasons.
type Timing struct {
	// Create is the time between the first observation of a pod and its sandbox (image pull included).
	Create time.Duration
	// Ready is the time between the start of a container with a readiness probe and its readiness; others are ready
	// immediately.
	Ready time.Duration
	// Init is the run time of a plain init container.
	Init time.Duration
	// Job is the run time of the containers of a Job's pod without AnnotationDuration.
	Job time.Duration
	// Stop is the time that a container takes to exit after SIGTERM, bounded by the pod's grace period.
	Stop time.Duration
	// Restart is the time between the first exit of a container and its restart.
	Restart time.Duration
	// BackOff is the delay before the second restart; it doubles with each restart up to BackOffMax.
	BackOff time.Duration
	// BackOffMax bounds the delay between restarts.
	BackOffMax time.Duration
	// BackOffReset is the run time after which a container's backoff is reset.
	BackOffReset time.Duration
	// Resize is the time between the admission and the application of a resize.
	Resize time.Duration
	// PressureHold is the time for which MemoryPressure stays True after the last excess.
	PressureHold time.Duration
}

// DefaultTiming returns the playground's timing: a pod runs 1 s after it was bound (0.8 to 1.1 s on a real node with
// its image), backoff is a tenth of the kubelet's (10 s to 5 min, reset after 10 min), a resize takes 0.2 s (0.1 to 0.9
// s on a real node), MemoryPressure stays for 30 s instead of 5 min.
func DefaultTiming() Timing {
	return Timing{
		Create:       time.Second,
		Ready:        time.Second,
		Init:         time.Second,
		Job:          30 * time.Second,
		Stop:         500 * time.Millisecond,
		Restart:      200 * time.Millisecond,
		BackOff:      time.Second,
		BackOffMax:   30 * time.Second,
		BackOffReset: time.Minute,
		Resize:       200 * time.Millisecond,
		PressureHold: 30 * time.Second,
	}
}

// Validate returns an error for negative durations and a decreasing backoff.
func (t Timing) Validate() error {
	for name, d := range map[string]time.Duration{
		"create": t.Create, "ready": t.Ready, "init": t.Init, "job": t.Job, "stop": t.Stop, "restart": t.Restart,
		"backOff": t.BackOff, "backOffMax": t.BackOffMax, "backOffReset": t.BackOffReset, "resize": t.Resize,
		"pressureHold": t.PressureHold,
	} {
		if d < 0 {
			return fmt.Errorf("timing.%s: %v is negative", name, d)
		}
	}

	if t.BackOffMax < t.BackOff {
		return fmt.Errorf("timing.backOffMax: %v is less than backOff (%v)", t.BackOffMax, t.BackOff)
	}

	return nil
}

// Annotations that define how a pod's containers behave on a simulated node. Invalid values are reported by an event
// and ignored.
const (
	// AnnotationDuration is the run time of the pod's containers, a Go duration. Without it pods of a Job exit after
	// Timing.Job, all others run until they are stopped.
	AnnotationDuration = "sim.crane.io/duration"
	// AnnotationExitCode is the exit code after that duration, 0 to 255; 0 where absent.
	AnnotationExitCode = "sim.crane.io/exit-code"
	// AnnotationReadyAfter is the time from a container's start to its readiness, a Go duration.
	AnnotationReadyAfter = "sim.crane.io/ready-after"
)
