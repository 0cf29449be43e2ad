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
	"crane.io/crane/internal/numawire"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/series"
)

// Facts are what a NodeResourceTopology is made of.
type Facts struct {
	Machine *Machine
	Kubelet Kubelet
	// Labels are the node's.
	Labels map[string]string
}

// taken is what is reserved of each zone.
type taken struct {
	cpu, memory []numa.Amount
	problems    []string
}

// reserve takes what the kubelet reserves from the zones: CPUs by number from the zones that they are in, everything else from the first
// zone, what that has not from the next, and so on.
func (f *Facts) reserve() taken {
	zones := f.Machine.Zones
	cpus, memory := make([]numa.Amount, len(zones)), make([]numa.Amount, len(zones))
	for i := range zones {
		cpus[i] = numa.Amount(zones[i].CPUs.Len()) * numa.Core
		memory[i] = numa.Amount(zones[i].Memory - zones[i].inHugePages())
	}
	// They were read from a kubelet's configuration, which refuses what is no amount.
	cpu, _ := numawire.Amount(corev1.ResourceCPU, f.Kubelet.Reserved[corev1.ResourceCPU])
	bytes, _ := numawire.Amount(corev1.ResourceMemory, f.Kubelet.Reserved[corev1.ResourceMemory])
	var t taken
	var beyond numa.Amount
	if fixed := f.Kubelet.ReservedCPUs; fixed.Len() > 0 {
		t.cpu = make([]numa.Amount, len(zones))
		for i := range zones {
			t.cpu[i] = numa.Amount(zones[i].CPUs.Intersection(fixed).Len()) * numa.Core
		}
		if gone := fixed.Difference(f.Machine.CPUs()); gone.Len() > 0 {
			t.problems = append(t.problems, fmt.Sprintf("the kubelet reserves the CPUs %s, which are not online", gone))
		}
	} else if t.cpu, beyond = numa.Reserve(cpus, cpu); beyond > 0 {
		t.problems = append(t.problems, fmt.Sprintf("the kubelet reserves %dm of cpu more than there is", beyond))
	}
	if t.memory, beyond = numa.Reserve(memory, bytes); beyond > 0 {
		t.problems = append(t.problems, fmt.Sprintf("the kubelet reserves %d MiB of memory more than there is", beyond>>20))
	}
	return t
}

func (z *Zone) inHugePages() (sum series.Bytes) {
	for _, n := range z.HugePages {
		sum += n
	}
	return min(sum, z.Memory)
}

// ReservedCPUs are the CPUs that nobody is given alone: those that the kubelet names, else as many of each zone as are reserved there, whole
// cores first.
func (f *Facts) ReservedCPUs() (numa.CPUSet, error) {
	if f.Kubelet.ReservedCPUs.Len() > 0 {
		return f.Kubelet.ReservedCPUs.Intersection(f.Machine.CPUs()), nil
	}
	layout, err := f.Machine.Layout(f.Machine.CPUs())
	if err != nil {
		return numa.CPUSet{}, err
	}
	var out numa.CPUSet
	for i, n := range f.reserve().cpu {
		cpus, _ := layout.Take(f.Machine.Zones[i].CPUs, wholeCPUs(n))
		out = out.Union(cpus)
	}
	return out, nil
}

func wholeCPUs(a numa.Amount) int { return int((a + numa.Core - 1) / numa.Core) }

// UsableMemory is what pods can have of each zone's memory, by the zone's name; zones without any are left out.
func (f *Facts) UsableMemory() map[string]series.Bytes {
	out, reserved := map[string]series.Bytes{}, f.reserve().memory
	for i := range f.Machine.Zones {
		z := &f.Machine.Zones[i]
		if n := z.Memory - z.inHugePages() - series.Bytes(reserved[i]); n > 0 {
			out[z.Name()] = n
		}
	}
	return out
}

// Problems are what is not as it should be, of the machine and of what the kubelet reserves.
func (f *Facts) Problems() []string {
	return append(slices.Clone(f.Machine.Problems), f.reserve().problems...)
}

// Build makes the NodeResourceTopology, without metadata.
func (f *Facts) Build() *topologyv1alpha1.NodeResourceTopology {
	t := &topologyv1alpha1.NodeResourceTopology{
		CraneManagerPolicy: topologyv1alpha1.ManagerPolicy{
			CPUManagerPolicy:      topologyv1alpha1.CPUManagerPolicyStatic,
			TopologyManagerPolicy: topologyv1alpha1.TopologyManagerPolicySingleNUMANodePodLevel,
		},
	}
	if f.Kubelet.Static {
		t.CraneManagerPolicy.CPUManagerPolicy = topologyv1alpha1.CPUManagerPolicyNone
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
	reserved := f.reserve()
	for i := range f.Machine.Zones {
		t.Zones = append(t.Zones, f.Machine.zone(i, reserved.cpu[i], reserved.memory[i]))
	}
	return t
}

// zone is a zone of which so much is reserved.
func (m *Machine) zone(i int, cpu, memory numa.Amount) topologyv1alpha1.Zone {
	z := &m.Zones[i]
	all := numa.Amount(z.CPUs.Len()) * numa.Core
	r := &topologyv1alpha1.ResourceInfo{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}, ReservedCPUNums: int32(wholeCPUs(cpu))}
	set := func(name corev1.ResourceName, capacity, allocatable numa.Amount) {
		r.Capacity[name], r.Allocatable[name] = numawire.Quantity(numa.Resource(name), capacity), numawire.Quantity(numa.Resource(name), allocatable)
	}
	set(corev1.ResourceCPU, all, all-cpu)
	if z.Memory > 0 {
		set(corev1.ResourceMemory, numa.Amount(z.Memory), numa.Amount(z.Memory-z.inHugePages())-memory)
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
