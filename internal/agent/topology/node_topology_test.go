// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

func parseTestKubelet(t testing.TB, text string) KubeletConfig {
	t.Helper()

	k, err := ParseKubelet([]byte("kind: KubeletConfiguration\n" + text))
	if err != nil {
		t.Fatal(err)
	}

	return k
}

func TestBuild(t *testing.T) {
	f := NodeTopology{Machine: readTestMachine(t, twoZoneFiles()), PinsCPUs: true, Kubelet: parseTestKubelet(t, `
kubeReserved: {cpu: 500m, memory: 1Gi, ephemeral-storage: 1Gi, pid: "100"}
systemReserved: {cpu: "7", memory: 16Gi}
evictionHard: {memory.available: 512Mi}
`)}

	want := `
craneManagerPolicy: {cpuManagerPolicy: Static, topologyManagerPolicy: SingleNUMANodePodLevel}
reserved: {cpu: 7500m, memory: 17Gi, ephemeral-storage: 1Gi, pid: "100"}
zones:
- name: node0
  type: Node
  costs: [{name: node0, value: 10}, {name: node2, value: 21}]
  resources:
    capacity: {cpu: "7", memory: 16Gi}
    allocatable: {cpu: "0", memory: "0"}
    reservedCPUNums: 7
- name: node2
  type: Node
  costs: [{name: node0, value: 21}, {name: node2, value: 10}]
  resources:
    capacity: {cpu: "7", memory: 8Gi, hugepages-2Mi: 1Gi}
    allocatable: {cpu: 6500m, memory: 5632Mi, hugepages-2Mi: 1Gi}
    reservedCPUNums: 1
`

	var expected topologyv1alpha1.NodeResourceTopology
	if err := yaml.UnmarshalStrict([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}

	if got := f.Build(); !equality.Semantic.DeepEqual(got, &expected) {
		out, _ := yaml.Marshal(got)
		t.Errorf("Build() =\n%s\nwant\n%s", out, want)
	}

	if p := f.Problems(); len(p) > 0 {
		t.Errorf("Problems() = %q, want none", p)
	}
}

func TestPolicies(t *testing.T) {
	m := readTestMachine(t, twoZoneFiles())
	for label, want := range map[string]topologyv1alpha1.TopologyManagerPolicy{
		"false": "None", "0": "None", "true": "SingleNUMANodePodLevel", "": "SingleNUMANodePodLevel", "never": "SingleNUMANodePodLevel",
	} {
		f := NodeTopology{Machine: m, PinsCPUs: true, Labels: map[string]string{topologyv1alpha1.LabelNodeTopologyAwareness: label}}
		if got := f.Build().CraneManagerPolicy; got.TopologyManagerPolicy != want || got.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyStatic {
			t.Errorf("label %q: policies are %+v, want %s and Static", label, got, want)
		}
	}

	f := NodeTopology{Machine: m}
	if got := f.Build().CraneManagerPolicy.CPUManagerPolicy; got != topologyv1alpha1.CPUManagerPolicyNone {
		t.Errorf("the policy is %s, want None: nothing assigns CPUs", got)
	}

	f = NodeTopology{Machine: m, PinsCPUs: true, Kubelet: parseTestKubelet(t, "cpuManagerPolicy: static\n")}
	if got := f.Build(); got.CraneManagerPolicy.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyNone || got.Reserved != nil || got.Attributes != nil {
		t.Errorf("with a static kubelet Build() = %+v, want policy None without reservations", got)
	}
}

// TestReservedByNumber checks that numbered CPUs are reserved in their zones, whatever amounts are reserved as well.
func TestReservedByNumber(t *testing.T) {
	f := NodeTopology{Machine: readTestMachine(t, twoZoneFiles()), Kubelet: parseTestKubelet(t, "kubeReserved: {cpu: 6}\nreservedSystemCPUs: \"0,4-5,77\"\n")}
	n := f.Build()
	cpu := n.Reserved["cpu"]
	if cpu.Value() != 4 || n.Attributes[topologyv1alpha1.AttributeReservedSystemCPUs] != "0,4-5,77" {
		t.Errorf("Build() = %+v, want 4 reserved CPUs: 0,4-5,77", n)
	}
	if n.Zones[0].Resources.ReservedCPUNums != 1 || n.Zones[1].Resources.ReservedCPUNums != 2 || n.Zones[1].Resources.Allocatable.Cpu().Value() != 5 {
		t.Errorf("zones are %+v, want 1 and 2 reserved CPUs and 5 allocatable in the second", n.Zones)
	}

	if got, err := f.ReservedCPUs(); err != nil || got.String() != "0,4-5" {
		t.Errorf("ReservedCPUs() = %s, %v, want 0,4-5", got, err)
	}
	if p := strings.Join(f.Problems(), ";"); !strings.Contains(p, "CPUs 77, which are not online") {
		t.Errorf("Problems() = %q, want CPU 77, which is not online", p)
	}
}

// TestReservedByAmount checks that whole cores are reserved, from the first zone on.
func TestReservedByAmount(t *testing.T) {
	for cpu, want := range map[string]string{"": "", "500m": "3", "2": "0,8", "7500m": "0-3,7-10", "99": "0-10,12-14"} {
		f := NodeTopology{Machine: readTestMachine(t, twoZoneFiles())}
		if cpu != "" {
			f.Kubelet = parseTestKubelet(t, "kubeReserved: {cpu: \""+cpu+"\"}\n")
		}
		if got, err := f.ReservedCPUs(); err != nil || got.String() != want {
			t.Errorf("%s of cpu: %s, %v, want %s", cpu, got, err, want)
		}
		if over := strings.Contains(strings.Join(f.Problems(), ";"), "more than there is"); over != (cpu == "99") {
			t.Errorf("%s of CPU: Problems() = %v, want a too large reservation: %t", cpu, f.Problems(), cpu == "99")
		}
	}
}

// TestReservationsAreRight checks for random machines and reservations that the zones lose exactly what is reserved (gocrane reserved
// more if a zone was smaller than the reservation), and that the scheduler's plugin can read the object.
func TestReservationsAreRight(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 13))
	for range 400 {
		m := &Machine{coreByCPU: map[int]int{}}
		next := 0
		for z := range 1 + r.IntN(4) {
			zone := Zone{ID: 2 * z, Memory: units.Bytes(r.IntN(8)) << 30}
			for range r.IntN(6) {
				zone.CPUs = zone.CPUs.Union(numa.NewCPUSet(next))
				m.coreByCPU[next] = next
				next += 1 + r.IntN(3)
			}

			m.Zones = append(m.Zones, zone)
		}

		f := NodeTopology{Machine: m, Kubelet: parseTestKubelet(t, fmt.Sprintf("kubeReserved: {cpu: %dm, memory: %dMi}\nsystemReserved: {cpu: %q}\nevictionHard: {}\n", r.IntN(9000), r.IntN(20000), fmt.Sprint(r.IntN(4))))}
		n := f.Build()
		reservedCPU := n.Reserved["cpu"]
		reservedMemory := n.Reserved["memory"]

		var all, usable, memory, usableMemory, nums int64
		for i := range n.Zones {
			res := n.Zones[i].Resources
			all += res.Capacity.Cpu().MilliValue()
			usable += res.Allocatable.Cpu().MilliValue()
			nums += int64(res.ReservedCPUNums)
			memory += res.Capacity.Memory().Value()
			usableMemory += res.Allocatable.Memory().Value()

			if res.Allocatable.Cpu().Sign() < 0 || res.Allocatable.Memory().Sign() < 0 {
				t.Fatalf("zones are %+v, want no negative allocatable amount", n.Zones)
			}
		}

		if want := min(reservedCPU.MilliValue(), all); all-usable != want || nums != (want+999)/1000 {
			t.Fatalf("%dm of %dm CPU are allocatable and %d CPUs reserved, want %dm less, rounded up to CPUs, by the kubelet's %s: %+v", usable, all, nums, want, reservedCPU.String(), n.Zones)
		}

		if want := min(reservedMemory.Value(), memory); memory-usableMemory != want {
			t.Fatalf("%d of %d bytes are allocatable, want %d less by the kubelet's %s", usableMemory, memory, want, reservedMemory.String())
		}

		zones, err := topologyconv.ReadZones(n)
		if err != nil {
			t.Fatal(err)
		}

		var account numa.Node
		if err := account.SetZones(zones); err != nil {
			t.Fatal(err)
		}

		// The scheduler can allocate exactly the CPUs that the agent can assign.
		cpus, err := f.ReservedCPUs()
		if err != nil {
			t.Fatal(err)
		}

		for i, free := range account.Free() {
			left := m.Zones[i].CPUs.Difference(cpus).Len()
			if int(free.Resources[units.CPU]/numa.Core) != left {
				t.Fatalf("zone %s: the scheduler counts %s, want the agent's %d CPUs", free.Zone, free.Resources, left)
			}
		}
	}
}
