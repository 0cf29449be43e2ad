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
	"crane.io/crane/pkg/units"
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
	t := &NodeTopology{Machine: machine, Kubelet: kubelet}
	if node != nil {
		t.Labels = node.Labels
		// An invalid amount counts as unknown.
		t.Allocatable, _ = topologyconv.ParseAmount(corev1.ResourceMemory, node.Status.Allocatable[corev1.ResourceMemory])
	}

	return t
}

// reservations holds the reserved amounts by zone.
type reservations struct {
	cpu, memory []numa.Amount
	problems    []string
}

// computeReservations divides the difference between capacity and allocatable among the zones: numbered CPUs in their zones, everything
// else from the first zone on.
func (t *NodeTopology) computeReservations() reservations {
	cpu, cpuProblems := t.reserveCPU()
	memory, memoryProblems := t.reserveMemory()
	return reservations{cpu, memory, append(cpuProblems, memoryProblems...)}
}

// reserveCPU returns the reserved CPU by zone, in thousandths of a core, and problems.
func (t *NodeTopology) reserveCPU() (out []numa.Amount, problems []string) {
	zones := t.Machine.Zones
	if fixed := t.Kubelet.ReservedCPUs; fixed.Len() > 0 {
		for i := range zones {
			out = append(out, numa.Amount(zones[i].CPUs.Intersection(fixed).Len())*numa.Core)
		}

		if offline := fixed.Difference(t.Machine.CPUs()); offline.Len() > 0 {
			problems = append(problems, fmt.Sprintf("the kubelet reserves the CPUs %s, which are not online", offline))
		}

		return out, problems
	}

	capacity := make([]numa.Amount, len(zones))
	for i := range zones {
		capacity[i] = numa.Amount(zones[i].CPUs.Len()) * numa.Core
	}

	// The configuration was validated when it was parsed.
	cpu, _ := topologyconv.ParseAmount(corev1.ResourceCPU, t.Kubelet.Reserved[corev1.ResourceCPU])

	out, beyond := numa.Reserve(capacity, cpu)
	if beyond > 0 {
		problems = append(problems, fmt.Sprintf("the kubelet reserves %dm of CPU more than there is", beyond))
	}

	return out, problems
}

// allocatableTolerance is the difference between zones and Node status that is not reported.
const allocatableTolerance numa.Amount = 1 << 20

// reserveMemory returns the reserved memory by zone in bytes, and problems: the kubelet's reservations and its hard eviction threshold, which
// both are not allocatable, whether or not the kubelet enforces them. A static memory manager determines the zones.
func (t *NodeTopology) reserveMemory() (out []numa.Amount, problems []string) {
	zones := t.Machine.Zones
	k := &t.Kubelet

	capacity := make([]numa.Amount, len(zones))
	var total, allocatable numa.Amount
	for i := range zones {
		total += numa.Amount(zones[i].Memory)
		capacity[i] = numa.Amount(zones[i].Memory - zones[i].hugePageBytes())
	}

	// Like the kubelet, reserve a share of all memory, including huge pages.
	reserved, _ := topologyconv.ParseAmount(corev1.ResourceMemory, k.Reserved[corev1.ResourceMemory])

	reserved += k.EvictionThreshold.Resolve(total)
	var named []numa.Amount
	if k.StaticMemory && len(k.ReservedMemory) > 0 {
		named, problems = t.reservedMemoryByZone(reserved)
	}

	out, beyond := numa.ReserveNamed(capacity, named, reserved)
	if beyond > 0 {
		problems = append(problems, fmt.Sprintf("the kubelet reserves %d MiB of memory more than there is", toMiB(beyond)))
	}

	for i := range capacity {
		allocatable += capacity[i] - out[i]
	}

	if reported := t.Allocatable; reported > 0 && max(reported-allocatable, allocatable-reported) >= allocatableTolerance {
		problems = append(problems, fmt.Sprintf("%d MiB of the zones' memory are allocatable, but %d MiB by the node's status: the kubelet uses another configuration or other memory", toMiB(allocatable), toMiB(reported)))
	}

	return out, problems
}

// reservedMemoryByZone returns the memory manager's reservations. A kubelet starts only if they sum up to the node's reservation.
func (t *NodeTopology) reservedMemoryByZone(reserved numa.Amount) (named []numa.Amount, problems []string) {
	named = make([]numa.Amount, len(t.Machine.Zones))
	var sum numa.Amount
	matched := 0
	for i := range t.Machine.Zones {
		n, found := t.Kubelet.ReservedMemory[t.Machine.Zones[i].ID]
		if found {
			matched++
		}

		named[i] = n
		sum += n
	}

	switch {
	case matched < len(t.Kubelet.ReservedMemory):
		problems = append(problems, fmt.Sprintf("the kubelet's reservedMemory names %d zones that do not exist", len(t.Kubelet.ReservedMemory)-matched))
	case sum != reserved:
		problems = append(problems, fmt.Sprintf("the kubelet's reservedMemory sums up to %d MiB, but %d MiB are reserved on the node: it is used as far as it fits, the rest is reserved from the first zone on", toMiB(sum), toMiB(reserved)))
	}

	return named, problems
}

func toMiB(a numa.Amount) numa.Amount { return a >> 20 }

func (z *Zone) hugePageBytes() (sum units.Bytes) {
	for _, n := range z.HugePages {
		sum += n
	}

	return min(sum, z.Memory)
}

// ReservedCPUs returns the CPUs that are not assigned to containers: those named by the kubelet, else as many of each zone as are
// reserved there, whole cores first.
func (t *NodeTopology) ReservedCPUs() (numa.CPUSet, error) {
	if t.Kubelet.ReservedCPUs.Len() > 0 {
		return t.Kubelet.ReservedCPUs.Intersection(t.Machine.CPUs()), nil
	}

	layout, err := t.Machine.Layout(t.Machine.CPUs())
	if err != nil {
		return numa.CPUSet{}, err
	}

	var out numa.CPUSet
	for i, n := range t.computeReservations().cpu {
		cpus, _ := layout.Take(t.Machine.Zones[i].CPUs, roundUpCPUs(n))
		out = out.Union(cpus)
	}

	return out, nil
}

func roundUpCPUs(a numa.Amount) int { return int((a + numa.Core - 1) / numa.Core) }

// UsableMemory returns the allocatable memory by zone name, without empty zones.
func (t *NodeTopology) UsableMemory() map[string]units.Bytes {
	out := map[string]units.Bytes{}
	reserved := t.computeReservations().memory
	for i := range t.Machine.Zones {
		z := &t.Machine.Zones[i]
		if n := z.Memory - z.hugePageBytes() - units.Bytes(reserved[i]); n > 0 {
			out[z.Name()] = n
		}
	}

	return out
}

// Problems returns the problems of the machine and of the reservations.
func (t *NodeTopology) Problems() []string {
	return append(slices.Clone(t.Machine.Problems), t.computeReservations().problems...)
}

// Build returns the NodeResourceTopology without metadata. Its policy for CPUs is Static only if this agent assigns them: otherwise the
// scheduler would keep whole-CPU pods waiting for zones from which nothing assigns them CPUs.
func (t *NodeTopology) Build() *topologyv1alpha1.NodeResourceTopology {
	out := &topologyv1alpha1.NodeResourceTopology{
		CraneManagerPolicy: topologyv1alpha1.ManagerPolicy{
			CPUManagerPolicy:      topologyv1alpha1.CPUManagerPolicyNone,
			TopologyManagerPolicy: topologyv1alpha1.TopologyManagerPolicySingleNUMANodePodLevel,
		},
	}

	if t.PinsCPUs && !t.Kubelet.Static {
		out.CraneManagerPolicy.CPUManagerPolicy = topologyv1alpha1.CPUManagerPolicyStatic
	}

	// An invalid label counts as absent.
	if aware, err := strconv.ParseBool(t.Labels[topologyv1alpha1.LabelNodeTopologyAwareness]); err == nil && !aware {
		out.CraneManagerPolicy.TopologyManagerPolicy = topologyv1alpha1.TopologyManagerPolicyNone
	}

	for name, q := range t.Kubelet.Reserved {
		if !q.IsZero() {
			if out.Reserved == nil {
				out.Reserved = corev1.ResourceList{}
			}
			out.Reserved[name] = q.DeepCopy()
		}
	}

	if t.Kubelet.ReservedCPUs.Len() > 0 {
		out.Attributes = map[string]string{topologyv1alpha1.AttributeReservedSystemCPUs: t.Kubelet.ReservedCPUs.String()}
	}

	reserved := t.computeReservations()
	for i := range t.Machine.Zones {
		out.Zones = append(out.Zones, t.Machine.buildZone(i, reserved.cpu[i], reserved.memory[i]))
	}

	return out
}

// buildZone returns a zone with the given reservations.
func (m *Machine) buildZone(i int, cpu, memory numa.Amount) topologyv1alpha1.Zone {
	z := &m.Zones[i]
	all := numa.Amount(z.CPUs.Len()) * numa.Core
	r := &topologyv1alpha1.ResourceInfo{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}, ReservedCPUNums: int32(roundUpCPUs(cpu))}
	set := func(name corev1.ResourceName, capacity, allocatable numa.Amount) {
		r.Capacity[name] = topologyconv.NewQuantity(units.Resource(name), capacity)
		r.Allocatable[name] = topologyconv.NewQuantity(units.Resource(name), allocatable)
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
