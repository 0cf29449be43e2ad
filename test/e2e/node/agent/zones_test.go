// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/test/e2e/node"
)

// kernelZone is a NUMA node as shown by the kernel.
type kernelZone struct {
	cpus      numa.CPUSet
	distances []int64
	memory    int64 // in bytes
}

// kernelZones reads the zones and the sibling threads of each CPU from a pod that runs the program cgroups.
func (f fixture) kernelZones(t testing.TB, pod *corev1.Pod) (zones []kernelZone, siblings map[int]numa.CPUSet) {
	t.Helper()

	set := func(text string) numa.CPUSet {
		out, err := numa.ParseCPUSet(text)
		if err != nil {
			t.Fatal(err)
		}

		return out
	}

	siblings = map[int]numa.CPUSet{}
	for name, text := range f.walk(t, pod, "/sys/devices/system/cpu", "thread_siblings_list") {
		cpu, err := strconv.Atoi(strings.TrimPrefix(path.Base(path.Dir(path.Dir(name))), "cpu"))
		if err != nil {
			t.Fatalf("the kernel's file %s names no CPU: %v", name, err)
		}

		siblings[cpu] = set(text)
	}

	files := f.walk(t, pod, "/sys/devices/system/node", "cpulist", "distance", "meminfo")
	for i := 0; files[fmt.Sprintf("/node%d/cpulist", i)] != ""; i++ {
		dir := fmt.Sprintf("/node%d/", i)
		z := kernelZone{cpus: set(files[dir+"cpulist"])}
		for text := range strings.FieldsSeq(files[dir+"distance"]) {
			d, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}

			z.distances = append(z.distances, d)
		}

		for line := range strings.Lines(files[dir+"meminfo"]) {
			if fields := strings.Fields(line); len(fields) == 5 && fields[2] == "MemTotal:" {
				kib, err := strconv.ParseInt(fields[3], 10, 64)
				if err != nil {
					t.Fatal(err)
				}

				z.memory = kib << 10
			}
		}

		zones = append(zones, z)
	}

	return zones, siblings
}

// walk reads all files of the given names below a directory of the pod by their relative path.
func (f fixture) walk(t testing.TB, pod *corev1.Pod, dir string, names ...string) map[string]string {
	t.Helper()

	found := map[string]string{}
	f.Eventually(t, "files below "+dir, func() error {
		out, err := f.Exec(t, pod, append([]string{"/nodekit", "cgroups", "walk", dir}, names...)...)
		if err != nil {
			return err
		}

		return json.Unmarshal([]byte(out), &found)
	})

	return found
}

// TestRealZones checks on a machine with two NUMA zones that the object matches the kernel, that reservations are distributed over the
// zones in order, and that a container gets a whole core and its memory in its zone.
func TestRealZones(t *testing.T) {
	const (
		reservedCPU, reservedMemory = 4500, 1100 << 20 // more than a zone has
		evicts                      = 100 << 20        // the kubelet's eviction threshold
	)
	f := newMachineFixture(t, node.Options{
		Machine: true, Cgroup: 2, CPUs: 8, Threads: 2, NUMAZones: 2, RealZones: true, MemoryMiB: 2048, Reserved: node.Resources("4500m", "1100Mi"),
	})

	look := f.Run(t, f.Pod("look", "cgroups", []string{"stay"}, nil, nil))
	kernel, siblings := f.kernelZones(t, look)
	if len(kernel) != 2 || kernel[0].cpus.String() != "0-3" || kernel[1].cpus.String() != "4-7" || kernel[0].distances[1] != 21 || siblings[4].Len() != 2 {
		t.Fatalf("the kernel has the zones %+v, and cores of the threads %v, want two zones of four CPUs with two threads a core", kernel, siblings)
	}

	f.deploy(t, append(cpuManager(), "--collect-interval=5s")...)
	f.awaitTopology(t)

	nrt, err := f.topology(t)
	if err != nil {
		t.Fatal(err)
	}

	f.asTheKernel(t, nrt, kernel)
	left := kernel[0].memory + kernel[1].memory - reservedMemory - evicts
	if n, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{}); err != nil || n.Status.Allocatable.Memory().Value() != left {
		t.Errorf("the node's status leaves %s of memory to pods, %v, want %d bytes as in the zones", n.Status.Allocatable.Memory(), err, left)
	}

	for i, want := range []struct{ cpu, memory, reserved int64 }{{0, 0, 4}, {8000 - reservedCPU, left, 1}} {
		r := nrt.Zones[i].Resources
		if r.Allocatable.Cpu().MilliValue() != want.cpu || r.Allocatable.Memory().Value() != want.memory || int64(r.ReservedCPUNums) != want.reserved {
			t.Errorf("zone %d has %+v for pods, want %+v", i, r, want)
		}
	}

	near := f.pinnedTo("near", "node1", "2", "memory-hog", "-mib", "64")
	list := node.Resources("2", "128Mi")
	near.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	near = f.Run(t, near)

	// Without a limit it may use all memory, which no zone has.
	far := f.pinnedTo("far", "node1", "1", "pause")
	far.Spec.Containers[0].Resources.Limits = node.Resources("1", "")
	far = f.Run(t, far)
	cgroups := f.Cgroups(t)
	read := func(pod *corev1.Pod, file string) (string, error) {
		return cgroups.Read(t, path.Join(containerDir(cgroups, pod), file))
	}

	var own numa.CPUSet
	f.Eventually(t, "pods run where they should", func() error {
		var got []string
		for _, pod := range []*corev1.Pod{near, far, look} {
			for _, file := range []string{"cpuset.cpus.effective", "cpuset.mems.effective"} {
				text, err := read(pod, file)
				if err != nil {
					return err
				}

				got = append(got, text)
			}
		}

		one, err1 := numa.ParseCPUSet(got[0])
		two, err2 := numa.ParseCPUSet(got[2])

		shared, err3 := numa.ParseCPUSet(got[4])
		if err1 != nil || err2 != nil || err3 != nil {
			return fmt.Errorf("they run on %q", got)
		}

		if one.Len() != 2 || two.Len() != 1 || one.Intersection(two).Len() > 0 || shared.Intersection(one.Union(two)).Len() > 0 ||
			one.Union(two).Difference(kernel[1].cpus).Len() > 0 || got[1] != "1" || got[3] != "0-1" || got[5] != "0-1" {
			return fmt.Errorf("they run on %q", got)
		}

		own = one
		return nil
	})

	for cpu := range own.All() {
		if siblings[cpu] != own {
			t.Errorf("it runs on %s, want all threads of CPU %d's core, %s", own, cpu, siblings[cpu])
		}
	}

	f.Eventually(t, "its memory is in its zone", func() error {
		stat, err := read(near, "memory.numa_stat")
		if err != nil {
			return err
		}

		for line := range strings.Lines(stat) {
			var here, there int64
			if n, _ := fmt.Sscanf(line, "anon N0=%d N1=%d", &there, &here); n == 2 && here >= 64<<20 && there == 0 {
				return nil
			}
		}

		return fmt.Errorf("it is in %q", stat)
	})
}

// asTheKernel checks that zones, distances and memory match the kernel, and that the memory matches the kubelet's capacity.
func (f fixture) asTheKernel(t testing.TB, nrt *topologyv1alpha1.NodeResourceTopology, kernel []kernelZone) {
	t.Helper()

	if len(nrt.Zones) != len(kernel) {
		t.Fatalf("%d zones, want %d: %+v", len(nrt.Zones), len(kernel), nrt)
	}

	var all int64
	for i, want := range kernel {
		z := nrt.Zones[i]
		var distances []int64
		for k, c := range z.Costs {
			if c.Name != fmt.Sprintf("node%d", k) {
				t.Errorf("costs of zone %d: %+v, want one for each node in order", i, z.Costs)
			}
			distances = append(distances, c.Value)
		}

		if z.Name != fmt.Sprintf("node%d", i) || !slices.Equal(distances, want.distances) ||
			z.Resources.Capacity.Cpu().Value() != int64(want.cpus.Len()) || z.Resources.Capacity.Memory().Value() != want.memory {
			t.Errorf("zone %d is %+v, want %+v as in the kernel", i, z, want)
		}

		all += want.memory
	}

	n, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if got := n.Status.Capacity.Memory().Value(); got != all {
		t.Errorf("the kubelet finds %d bytes of memory, want %d as in the zones", got, all)
	}
}
