// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// kubeletSettings is a kubelet configuration as written by an administrator.
type kubeletSettings struct {
	KubeReserved, SystemReserved map[string]string
	EvictionHard                 map[string]string // nil for not set
	Merge                        bool
	Memory                       string // the memory manager's policy
	ReservedMemory               []any
	Enforce                      []string
}

func (w kubeletSettings) file() []byte {
	c := map[string]any{
		"kind": "KubeletConfiguration", "kubeReserved": w.KubeReserved, "systemReserved": w.SystemReserved, "memoryManagerPolicy": w.Memory,
		"mergeDefaultEvictionSettings": w.Merge, "reservedMemory": w.ReservedMemory, "enforceNodeAllocatable": w.Enforce,
	}

	if w.EvictionHard != nil {
		c["evictionHard"] = w.EvictionHard
	}

	out, _ := json.Marshal(c) // JSON is YAML.
	return out
}

// configz returns the kubelet's answer for this configuration: with defaults, without empty fields.
func (w kubeletSettings) configz() []byte {
	hard := w.effectiveEvictionHard()
	c := map[string]any{"kubeReserved": w.KubeReserved, "systemReserved": w.SystemReserved, "memoryManagerPolicy": w.Memory, "reservedMemory": w.ReservedMemory}
	if len(hard) > 0 {
		c["evictionHard"] = hard
	}

	out, _ := json.Marshal(map[string]any{"kubeletconfig": c})
	return out
}

// effectiveEvictionHard returns the thresholds in force, as in cmd/kubelet/app/server.go (loadConfigFile) of Kubernetes 1.36.
func (w kubeletSettings) effectiveEvictionHard() map[string]string {
	defaults := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}
	if w.EvictionHard == nil {
		return defaults
	}

	out := map[string]string{}
	if w.Merge {
		out = defaults
	}

	maps.Copy(out, w.EvictionHard)
	return out
}

// allocatable computes the node's allocatable memory as pkg/kubelet/cm (GetNodeAllocatableReservation, hardEvictionReservation) and
// pkg/kubelet/nodestatus (MachineInfo) of Kubernetes 1.36 do.
func (w kubeletSettings) allocatable(capacity, hugePages int64) int64 {
	value := resource.NewQuantity(capacity, resource.BinarySI)
	reserved := resource.NewQuantity(0, resource.DecimalSI)
	for _, list := range []map[string]string{w.SystemReserved, w.KubeReserved} {
		if text, there := list["memory"]; there {
			reserved.Add(resource.MustParse(text))
		}
	}

	switch text := w.effectiveEvictionHard()["memory.available"]; {
	case text == "", text == "0%", text == "100%":
	case strings.HasSuffix(text, "%"):
		v, _ := strconv.ParseFloat(strings.TrimRight(text, "%"), 32)
		reserved.Add(*resource.NewQuantity(int64(float64(capacity)*float64(float32(v)/100)), resource.BinarySI))
	default:
		reserved.Add(resource.MustParse(text))
	}

	value.Sub(*reserved)
	if value.Sign() < 0 {
		value.Set(0)
	}

	value.Sub(*resource.NewQuantity(hugePages, resource.BinarySI))
	if value.Sign() < 0 {
		value.Set(0)
	}

	return value.Value()
}

// reserved returns the required sum of reservedMemory.
func (w kubeletSettings) reserved(capacity int64) int64 { return capacity - w.allocatable(capacity, 0) }

// randomMachine returns a machine with gaps in its zone numbers, some zones without memory or CPUs, and a configuration.
func randomMachine(r *rand.Rand) (*Machine, kubeletSettings) {
	m := &Machine{coreByCPU: map[int]int{}}
	id, cpu := 0, 0
	for range 1 + r.IntN(4) {
		z := Zone{ID: id}
		id += 1 + r.IntN(3)

		if r.IntN(5) > 0 {
			z.Memory = units.Bytes(r.Int64N(8<<20)) << 10
		}
		if z.Memory > 1<<30 && r.IntN(3) == 0 {
			z.HugePages = map[units.Bytes]units.Bytes{2 << 20: units.Bytes(r.Int64N(512)) << 21}
		}

		for range r.IntN(5) {
			z.CPUs = z.CPUs.Union(numa.NewCPUSet(cpu))
			m.coreByCPU[cpu] = cpu
			cpu++
		}

		m.Zones = append(m.Zones, z)
	}

	one := func(from ...string) string { return from[r.IntN(len(from))] }
	w := kubeletSettings{
		KubeReserved: map[string]string{"cpu": one("0", "500m", "3"), "memory": one("0", "1Gi", "123456789", "700M", "1.5Gi")},
		Memory:       one("", "None", "Static"), Merge: r.IntN(3) == 0,
		Enforce: [][]string{nil, {"none"}, {"pods"}, {"pods", "system-reserved", "kube-reserved"}, {"system-reserved-compressible"}}[r.IntN(5)],
	}

	if r.IntN(2) == 0 {
		w.SystemReserved = map[string]string{"memory": one("64Mi", "9Gi", "100k")}
	}

	switch r.IntN(6) {
	case 0:
		w.EvictionHard = map[string]string{"nodefs.available": one("10%", "0%")}
	case 1:
		w.EvictionHard = map[string]string{}
	case 2, 3, 4:
		w.EvictionHard = map[string]string{"memory.available": one("100Mi", "1Gi", "5%", "10%", "0.5%", "33.3%", "0%", "100%", "12345678", "99.9%")}
	}

	return m, w
}

// divideReserved divides the reservation among zones, as an administrator does for the memory manager.
func divideReserved(r *rand.Rand, m *Machine, reserved int64) (out []any) {
	for i := range m.Zones {
		n := min(reserved, int64(m.Zones[i].Memory-m.Zones[i].hugePageBytes()))
		if i < len(m.Zones)-1 && n > 0 {
			n = r.Int64N(n + 1)
		}

		reserved -= n
		if n > 0 {
			out = append(out, map[string]any{"numaNode": m.Zones[i].ID, "limits": map[string]string{"memory": strconv.FormatInt(n, 10)}})
		}
	}

	return out
}

// TestZonesAreTheNodesAllocatable checks that the zones' allocatable memory sums up to the node's, to the byte, for any reservation,
// memory policy and source of the configuration.
func TestZonesAreTheNodesAllocatable(t *testing.T) {
	r := rand.New(rand.NewPCG(36, 3))
	for range 1000 {
		m, w := randomMachine(r)
		var capacity, huge int64
		for i := range m.Zones {
			capacity += int64(m.Zones[i].Memory)
			huge += int64(m.Zones[i].hugePageBytes())
		}

		reserved := w.reserved(capacity)
		if r.IntN(4) > 0 {
			w.ReservedMemory = divideReserved(r, m, reserved)
		} else if r.IntN(2) == 0 { // A kubelet with a static memory manager would not start with this.
			w.ReservedMemory = append(divideReserved(r, m, r.Int64N(4<<30)), map[string]any{"numaNode": 99, "limits": map[string]string{"memory": "1Gi"}})
		}

		want := w.allocatable(capacity, huge)
		for source, parse := range map[string]func() (KubeletConfig, error){
			"file":    func() (KubeletConfig, error) { return ParseKubelet(w.file()) },
			"configz": func() (KubeletConfig, error) { return configOf(w.configz()) },
		} {
			k, err := parse()
			if err != nil {
				t.Fatalf("parsing the %s of %+v: %v", source, w, err)
			}

			status := corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(want, resource.BinarySI)}
			f := newNodeTopology(m, k, &corev1.Node{Status: corev1.NodeStatus{Allocatable: status}})
			if got := sumUsableMemory(t, f); got != want {
				t.Fatalf("%s of %+v on %+v: the zones have %d usable bytes, want %d as the node", source, w, m.Zones, got, want)
			}

			if p := strings.Join(f.Problems(), ";"); strings.Contains(p, "by the node's status") {
				t.Fatalf("%s of %+v: Problems() = %s, want no difference from the node's status", source, w, p)
			}
		}
	}
}

// sumUsableMemory returns the allocatable memory of all zones after checking that each is within its capacity.
func sumUsableMemory(t *testing.T, f *NodeTopology) (all int64) {
	t.Helper()

	usable := f.UsableMemory()
	for _, z := range f.Build().Zones {
		memory := z.Resources.Allocatable.Memory().Value()
		capacity := z.Resources.Capacity.Memory().Value()
		if memory < 0 || memory > capacity || int64(usable[z.Name]) != memory {
			t.Fatalf("zone %s: %d of %d bytes are allocatable and %d usable; want the same within the capacity", z.Name, memory, capacity, usable[z.Name])
		}

		all += memory
	}

	return all
}

// TestStaticMemory checks that a valid reservedMemory determines the zones' allocatable memory.
func TestStaticMemory(t *testing.T) {
	const said = "systemReserved: {memory: 1Gi}\nevictionHard: {memory.available: 1Gi}\n"
	for name, c := range map[string]struct{ text, want, problem string }{
		"by the second zone":         {"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 2, limits: {memory: 2Gi}}]\n", "16384 5120", ""},
		"by both":                    {"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 512Mi}}, {numaNode: 2, limits: {memory: 1536Mi}}]\n", "15872 5632", ""},
		"policy None knows none":     {"memoryManagerPolicy: None\nreservedMemory: [{numaNode: 2, limits: {memory: 2Gi}}]\n", "14336 7168", ""},
		"less than is reserved":      {"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 2, limits: {memory: 512Mi}}]\n", "14848 6656", "reservedMemory sums up to 512 MiB, but 2048 MiB"},
		"more than is reserved":      {"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 2, limits: {memory: 5Gi}}]\n", "16384 5120", "reservedMemory sums up to 5120 MiB, but 2048 MiB"},
		"more than the zone has":     {"memoryManagerPolicy: Static\nsystemReserved: {memory: 8Gi}\nreservedMemory: [{numaNode: 2, limits: {memory: 9Gi}}]\n", "14336 0", ""},
		"of a zone that is not here": {"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 1, limits: {memory: 2Gi}}]\n", "14336 7168", "1 zones that do not exist"},
		"huge pages alone":           {"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 2, limits: {hugepages-2Mi: 2Mi}}]\n", "14336 7168", ""},
	} {
		text := said + c.text
		if strings.Contains(c.text, "systemReserved") {
			text = "evictionHard: {memory.available: 1Gi}\n" + c.text
		}

		f := NodeTopology{Machine: readTestMachine(t, twoZoneFiles()), Kubelet: parseTestKubelet(t, text)}
		n := f.Build()

		got := fmt.Sprint(n.Zones[0].Resources.Allocatable.Memory().Value()>>20, n.Zones[1].Resources.Allocatable.Memory().Value()>>20)
		if got != c.want {
			t.Errorf("%s: %s MiB, want %s", name, got, c.want)
		}
		if p := strings.Join(f.Problems(), ";"); !strings.Contains(p, c.problem) || c.problem == "" && p != "" {
			t.Errorf("%s: problems %q, want %q", name, p, c.problem)
		}
	}
}

// TestStatusDiffers checks that a difference from the node's status is reported.
func TestStatusDiffers(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("23Gi")}}}
	f := newNodeTopology(readTestMachine(t, twoZoneFiles()), parseTestKubelet(t, ""), node)
	if p := strings.Join(f.Problems(), ";"); !strings.Contains(p, "23452 MiB of the zones' memory are allocatable, but 23552 MiB") {
		t.Errorf("Problems() = %q, want a difference of 23452 from 23552 MiB", p)
	}

	node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("23452Mi") // 24 GiB less 1 GiB of huge pages and the default threshold
	if p := newNodeTopology(readTestMachine(t, twoZoneFiles()), parseTestKubelet(t, ""), node).Problems(); len(p) > 0 {
		t.Errorf("Problems() = %q, want none for the same amount", p)
	}
}
