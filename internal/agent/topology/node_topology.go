// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/series"
)

// NodeTopology holds the inputs of a NodeResourceTopology.
type NodeTopology struct {
	Machine *Machine
	Kubelet KubeletConfig
	// PinsCPUs means that this agent assigns CPUs to containers.
	PinsCPUs bool
	// Labels are the Node's labels.
	Labels map[string]string
	// Allocatable is the allocatable memory of the Node's status; 0 for unknown.
	Allocatable numa.Amount
}

// newNodeTopology combines machine, kubelet configuration and Node, which is nil if unknown.
func newNodeTopology(machine *Machine, kubelet KubeletConfig, node *corev1.Node) *NodeTopology {
	f := &NodeTopology{Machine: machine, Kubelet: kubelet}
	if node != nil {
		f.Labels = node.Labels
		// An invalid amount counts as unknown.
		f.Allocatable, _ = topologyconv.ParseAmount(corev1.ResourceMemory, node.Status.Allocatable[corev1.ResourceMemory])
	}

	return f
}

// reservations holds the reserved amounts by zone.
type reservations struct {
	cpu, memory []numa.Amount
	problems    []string
}

// computeReservations divides the difference between capacity and allocatable among the zones: numbered CPUs in their zones, everything
// else from the first zone on.
func (f *NodeTopology) computeReservations() reservations {
	cpu, cpuProblems := f.reserveCPU()
	memory, memoryProblems := f.reserveMemory()
	return reservations{cpu, memory, append(cpuProblems, memoryProblems...)}
}

// reserveCPU returns the reserved CPU by zone, in thousandths of a core, and problems.
func (f *NodeTopology) reserveCPU() (out []numa.Amount, problems []string) {
	zones := f.Machine.Zones
	if fixed := f.Kubelet.ReservedCPUs; fixed.Len() > 0 {
		for i := range zones {
			out = append(out, numa.Amount(zones[i].CPUs.Intersection(fixed).Len())*numa.Core)
		}

		if gone := fixed.Difference(f.Machine.CPUs()); gone.Len() > 0 {
			problems = append(problems, fmt.Sprintf("the kubelet reserves the CPUs %s, which are not online", gone))
		}

		return out, problems
	}

	has := make([]numa.Amount, len(zones))
	for i := range zones {
		has[i] = numa.Amount(zones[i].CPUs.Len()) * numa.Core
	}

	// The configuration was validated when it was parsed.
	cpu, _ := topologyconv.ParseAmount(corev1.ResourceCPU, f.Kubelet.Reserved[corev1.ResourceCPU])

	out, beyond := numa.Reserve(has, cpu)
	if beyond > 0 {
		problems = append(problems, fmt.Sprintf("the kubelet reserves %dm of CPU more than there is", beyond))
	}

	return out, problems
}

// allocatableTolerance is the difference between zones and Node status that is not reported.
const allocatableTolerance numa.Amount = 1 << 20

// reserveMemory returns the reserved memory by zone in bytes, and problems: the kubelet's reservations and its hard eviction threshold, which
// both are not allocatable, whether or not the kubelet enforces them. A static memory manager determines the zones.
func (f *NodeTopology) reserveMemory() (out []numa.Amount, problems []string) {
	zones := f.Machine.Zones
	k := &f.Kubelet

	has := make([]numa.Amount, len(zones))
	var all, left numa.Amount
	for i := range zones {
		all += numa.Amount(zones[i].Memory)
		has[i] = numa.Amount(zones[i].Memory - zones[i].hugePageBytes())
	}

	reserved, _ := topologyconv.ParseAmount(corev1.ResourceMemory, k.Reserved[corev1.ResourceMemory])
	reserved += k.EvictionThreshold.Resolve(all)
	var named []numa.Amount
	if k.StaticMemory && len(k.ReservedMemory) > 0 {
		named, problems = f.reservedMemoryByZone(reserved)
	}

	out, beyond := numa.ReserveNamed(has, named, reserved)
	if beyond > 0 {
		problems = append(problems, fmt.Sprintf("the kubelet reserves %d MiB of memory more than there is", toMiB(beyond)))
	}

	for i := range has {
		left += has[i] - out[i]
	}

	if found := f.Allocatable; found > 0 && max(found-left, left-found) >= allocatableTolerance {
		problems = append(problems, fmt.Sprintf("%d MiB of the zones' memory are allocatable, but %d MiB by the node's status: the kubelet uses another configuration or other memory", toMiB(left), toMiB(found)))
	}

	return out, problems
}

// reservedMemoryByZone returns the memory manager's reservations. A kubelet starts only if they sum up to the node's reservation.
func (f *NodeTopology) reservedMemoryByZone(reserved numa.Amount) (named []numa.Amount, problems []string) {
	named = make([]numa.Amount, len(f.Machine.Zones))
	var sum numa.Amount
	known := 0
	for i := range f.Machine.Zones {
		n, found := f.Kubelet.ReservedMemory[f.Machine.Zones[i].ID]
		if found {
			known++
		}

		named[i] = n
		sum += n
	}

	switch {
	case known < len(f.Kubelet.ReservedMemory):
		problems = append(problems, fmt.Sprintf("the kubelet's reservedMemory names %d zones that do not exist", len(f.Kubelet.ReservedMemory)-known))
	case sum != reserved:
		problems = append(problems, fmt.Sprintf("the kubelet's reservedMemory sums up to %d MiB, but %d MiB are reserved on the node: it is used as far as it fits, the rest is reserved from the first zone on", toMiB(sum), toMiB(reserved)))
	}

	return named, problems
}

func toMiB(a numa.Amount) numa.Amount { return a >> 20 }

func (z *Zone) hugePageBytes() (sum series.Bytes) {
	for _, n := range z.HugePages {
		sum += n
	}

	return min(sum, z.Memory)
}

// ReservedCPUs returns the CPUs that are not assigned to containers: those named by the kubelet, else as many of each zone as are
// reserved there, whole cores first.
func (f *NodeTopology) ReservedCPUs() (numa.CPUSet, error) {
	if f.Kubelet.ReservedCPUs.Len() > 0 {
		return f.Kubelet.ReservedCPUs.Intersection(f.Machine.CPUs()), nil
	}

	layout, err := f.Machine.Layout(f.Machine.CPUs())
	if err != nil {
		return numa.CPUSet{}, err
	}

	var out numa.CPUSet
	for i, n := range f.computeReservations().cpu {
		cpus, _ := layout.Take(f.Machine.Zones[i].CPUs, roundUpCPUs(n))
		out = out.Union(cpus)
	}

	return out, nil
}

func roundUpCPUs(a numa.Amount) int { return int((a + numa.Core - 1) / numa.Core) }

// UsableMemory returns the allocatable memory by zone name, without empty zones.
func (f *NodeTopology) UsableMemory() map[string]series.Bytes {
	out := map[string]series.Bytes{}
	reserved := f.computeReservations().memory
	for i := range f.Machine.Zones {
		z := &f.Machine.Zones[i]
		if n := z.Memory - z.hugePageBytes() - series.Bytes(reserved[i]); n > 0 {
			out[z.Name()] = n
		}
	}

	return out
}

// Problems returns the problems of the machine and of the reservations.
func (f *NodeTopology) Problems() []string {
	return append(slices.Clone(f.Machine.Problems), f.computeReservations().problems...)
}

// Build returns the NodeResourceTopology without metadata. Its policy for CPUs is Static only if this agent assigns them: otherwise the
// scheduler would keep whole-CPU pods waiting for zones from which nothing assigns them CPUs.
func (f *NodeTopology) Build() *topologyv1alpha1.NodeResourceTopology {
	t := &topologyv1alpha1.NodeResourceTopology{
		CraneManagerPolicy: topologyv1alpha1.ManagerPolicy{
			CPUManagerPolicy:      topologyv1alpha1.CPUManagerPolicyNone,
			TopologyManagerPolicy: topologyv1alpha1.TopologyManagerPolicySingleNUMANodePodLevel,
		},
	}

	if f.PinsCPUs && !f.Kubelet.Static {
		t.CraneManagerPolicy.CPUManagerPolicy = topologyv1alpha1.CPUManagerPolicyStatic
	}
	if aware, err := strconv.ParseBool(f.Labels[topologyv1alpha1.LabelNodeTopologyAwareness]); err == nil && !aware {
		t.CraneManagerPolicy.TopologyManagerPolicy = topologyv1alpha1.TopologyManagerPolicyNone
	}

	for name, q := range f.Kubelet.Reserved {
		if !q.IsZero() {
			if t.Reserved == nil {
				t.Reserved = corev1.ResourceList{}
			}
			t.Reserved[name] = q.DeepCopy()
		}
	}

	if f.Kubelet.ReservedCPUs.Len() > 0 {
		t.Attributes = map[string]string{topologyv1alpha1.AttributeReservedSystemCPUs: f.Kubelet.ReservedCPUs.String()}
	}

	reserved := f.computeReservations()
	for i := range f.Machine.Zones {
		t.Zones = append(t.Zones, f.Machine.buildZone(i, reserved.cpu[i], reserved.memory[i]))
	}

	return t
}

// buildZone returns a zone with the given reservations.
func (m *Machine) buildZone(i int, cpu, memory numa.Amount) topologyv1alpha1.Zone {
	z := &m.Zones[i]
	all := numa.Amount(z.CPUs.Len()) * numa.Core
	r := &topologyv1alpha1.ResourceInfo{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}, ReservedCPUNums: int32(roundUpCPUs(cpu))}
	set := func(name corev1.ResourceName, capacity, allocatable numa.Amount) {
		r.Capacity[name] = topologyconv.NewQuantity(series.Resource(name), capacity)
		r.Allocatable[name] = topologyconv.NewQuantity(series.Resource(name), allocatable)
	}
	set(corev1.ResourceCPU, all, all-cpu)

	if z.Memory > 0 {
		set(corev1.ResourceMemory, numa.Amount(z.Memory), numa.Amount(z.Memory-z.hugePageBytes())-memory)
	}

	for _, size := range slices.Sorted(maps.Keys(z.HugePages)) {
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(int64(size), resource.BinarySI).String()
		set(corev1.ResourceName(name), numa.Amount(z.HugePages[size]), numa.Amount(z.HugePages[size]))
	}

	out := topologyv1alpha1.Zone{Name: z.Name(), Type: topologyv1alpha1.ZoneTypeNode, Resources: r}
	for _, id := range slices.Sorted(maps.Keys(z.Distances)) {
		out.Costs = append(out.Costs, topologyv1alpha1.CostInfo{Name: topologyv1alpha1.ZoneNamePrefix + strconv.Itoa(id), Value: int64(z.Distances[id])})
	}

	return out
}
