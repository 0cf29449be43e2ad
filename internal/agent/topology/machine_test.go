// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/test/hostrecording"
)

// twoZoneFiles describes a machine with the zones 0 and 2 of four cores each. One core of zone 2 is offline, and one thread of another
// core; siblings are 8 apart. Zone 2 has huge pages.
func twoZoneFiles() map[string]string {
	files := map[string]string{
		"sys/devices/system/cpu/online":                                            "0-10,12-14\n",
		"sys/devices/system/node/node0/cpulist":                                    "0-3,8-11\n", // 11 is offline, but listed by old kernels
		"sys/devices/system/node/node0/distance":                                   "10 21\n",
		"sys/devices/system/node/node0/meminfo":                                    "Node 0 MemTotal:       16777216 kB\nNode 0 MemFree:        1024 kB\n",
		"sys/devices/system/node/node2/cpulist":                                    "4-7,12-14\n",
		"sys/devices/system/node/node2/distance":                                   "21 10\n",
		"sys/devices/system/node/node2/meminfo":                                    "Node 2 MemTotal:       8388608 kB\nNode 2 MemFree:        1024 kB\n",
		"sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages":    "512\n",
		"sys/devices/system/node/node2/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
		"sys/devices/system/node/node2/hugepages/hugepages-2048kB/free_hugepages":  "3\n",
		"sys/devices/system/node/possible":                                         "0-3\n",
		"sys/devices/system/node/power/unrelated":                                  "\n",
		"sys/devices/system/node/node02/cpulist":                                   "0\n", // not a kernel name
		"sys/devices/system/cpu/cpufreq/unrelated":                                 "\n",
		"proc/meminfo": "MemTotal: 1024 kB\nMemAvailable: 512 kB\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/unreadable/something": "\n",
	}

	for c := range 15 {
		siblings := fmt.Sprintf("%d,%d\n", c%8, c%8+8)
		switch c {
		case 11, 3: // 11 is offline
			siblings = "3\n"
		case 7:
			siblings = "7\n"
		}

		files[fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/core_cpus_list", c)] = siblings
	}

	delete(files, "sys/devices/system/node/node0/hugepages/hugepages-2048kB/unreadable/something")
	return files
}

func writeHost(t testing.TB, files map[string]string) host.Root {
	t.Helper()

	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return host.Root(dir)
}

func readTestMachine(t testing.TB, files map[string]string) *Machine {
	t.Helper()

	m, err := ReadMachine(writeHost(t, files))
	if err != nil {
		t.Fatal(err)
	}

	return m
}

func TestReadMachine(t *testing.T) {
	m := readTestMachine(t, twoZoneFiles())
	if len(m.Problems) > 0 || len(m.Zones) != 2 || m.Zones[0].ID != 0 || m.Zones[1].ID != 2 {
		t.Fatalf("ReadMachine = %+v, want zones 0 and 2 without problems", m)
	}

	a := &m.Zones[0]
	b := &m.Zones[1]
	if a.CPUs.String() != "0-3,8-10" || b.CPUs.String() != "4-7,12-14" || a.Memory != 16<<30 || b.Memory != 8<<30 {
		t.Errorf("zones are %+v, want 7 CPUs and 16 GiB, and 6 CPUs and 8 GiB", m.Zones)
	}
	if fmt.Sprint(a.Distances, b.Distances, a.HugePages, b.HugePages) != "map[0:10 2:21] map[0:21 2:10] map[] map[2097152:1073741824]" {
		t.Errorf("distances %v and %v, huge pages %v and %v; want 10 and 21, and 1 GiB of 2 MiB pages in the second zone", a.Distances, b.Distances, a.HugePages, b.HugePages)
	}

	layout, err := m.Layout(m.CPUs())
	if err != nil {
		t.Fatal(err)
	}

	// 3 and 7 have no siblings, so that they are single-threaded cores.
	for n, want := range map[int]string{2: "0,8", 3: "0,3,8", 6: "0-2,8-10"} {
		if got, ok := layout.Take(a.CPUs, n); !ok || got.String() != want {
			t.Errorf("Take(%d) = %s, want %s", n, got, want)
		}
	}

	if m.Cores(m.CPUs()) != 8 || m.Cores(a.CPUs) != 4 {
		t.Errorf("Cores = %d, %d in the first zone; want 8 and 4", m.Cores(m.CPUs()), m.Cores(a.CPUs))
	}
}

// TestReadMachine_Caches checks that CPUs of as few L3 caches as possible are taken, and what is assumed of caches that are unknown.
func TestReadMachine_Caches(t *testing.T) {
	// The first zone has the caches {0,1,8,9} and {2,3,10}.
	const cpu = "sys/devices/system/cpu/"
	files := func() map[string]string {
		f := twoZoneFiles()
		for c, shared := range map[int]string{0: "0-1,8-9", 1: "0-1,8-9", 8: "0-1,8-9", 9: "0-1,8-9", 2: "2-3,10-11", 3: "2-3,10-11", 10: "2-3,10-11"} {
			f[fmt.Sprintf(cpu+"cpu%d/cache/index3/shared_cpu_list", c)] = shared + "\n"
			f[fmt.Sprintf(cpu+"cpu%d/cache/index3/level", c)] = "3\n"
		}

		return f
	}

	for name, test := range map[string]struct {
		change  func(map[string]string)
		want    string // 3 CPUs of 1-3,9,10
		problem string
	}{
		"two caches": {func(map[string]string) {}, "2-3,10", ""},
		"none": {func(f map[string]string) {
			maps.DeleteFunc(f, func(n, _ string) bool { return strings.Contains(n, "index3") })
		}, "1,3,9", ""},
		"of another level": {func(f map[string]string) {
			for name := range f {
				if strings.HasSuffix(name, "index3/level") {
					f[name] = "2\n"
				}
			}
		}, "1,3,9", ""},
		"without itself": {func(f map[string]string) {
			f[cpu+"cpu1/cache/index3/shared_cpu_list"] = "5\n"
			f[cpu+"cpu0/cache/index3/shared_cpu_list"] = "5\n"
		}, "2-3,10", "L3 caches of 2 CPUs are unknown"},
		"not a list": {func(f map[string]string) { f[cpu+"cpu0/cache/index3/shared_cpu_list"] = "x\n" }, "2-3,10", "L3 caches of 1 CPUs are unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			f := files()
			test.change(f)
			m := readTestMachine(t, f)
			if problems := strings.Join(m.Problems, "; "); !strings.Contains(problems, test.problem) || test.problem == "" && problems != "" {
				t.Errorf("problems %q, want %q", problems, test.problem)
			}

			layout, err := m.Layout(m.CPUs())
			if err != nil {
				t.Fatal(err)
			}

			if got, ok := layout.Take(numa.NewCPUSet(1, 2, 3, 9, 10), 3); !ok || got.String() != test.want {
				t.Errorf("Take(1-3,9-10, 3) = %s, %t, want %s", got, ok, test.want)
			}
		})
	}
}

// TestOddMachines checks the problems and assumptions for missing and invalid files.
func TestOddMachines(t *testing.T) {
	const node = "sys/devices/system/node/"
	for name, test := range map[string]struct {
		change  func(map[string]string)
		zones   string
		problem string
	}{
		"no zones": {func(f map[string]string) {
			maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, node) })
		}, "0: 0-10,12-14 0MiB", "counts as one"},
		"zones alone": {func(f map[string]string) { delete(f, "sys/devices/system/cpu/online") }, "0: 0-3,8-11 16384MiB; 2: 4-7,12-14 8192MiB", "online CPUs are unknown"},
		"half a line": {func(f map[string]string) { f["sys/devices/system/cpu/online"] = "0-1" }, "0: 0-3,8-11 16384MiB; 2: 4-7,12-14 8192MiB", "middle of a line"},
		"no cores": {func(f map[string]string) {
			maps.DeleteFunc(f, func(name, _ string) bool { return strings.Contains(name, "topology") })
		}, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 8192MiB", "cores of 14 CPUs are unknown"},
		"siblings without itself": {func(f map[string]string) { f["sys/devices/system/cpu/cpu5/topology/core_cpus_list"] = "6\n" }, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 8192MiB", "not among its own siblings"},
		"siblings across zones":   {func(f map[string]string) { f["sys/devices/system/cpu/cpu0/topology/core_cpus_list"] = "0,4,8\n" }, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 8192MiB", ""},
		"a CPU in two zones":      {func(f map[string]string) { f[node+"node2/cpulist"] = "3-7,12-14\n" }, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 8192MiB", "CPUs 3 are in zone 2 and in a previous one"},
		"a CPU in no zone":        {func(f map[string]string) { f[node+"node2/cpulist"] = "4-7,12\n" }, "0: 0-3,8-10 16384MiB; 2: 4-7,12 8192MiB", "CPUs 13-14 are in no zone"},
		"memory alone":            {func(f map[string]string) { f[node+"node2/cpulist"] = "\n" }, "0: 0-3,8-10 16384MiB; 2:  8192MiB", "CPUs 4-7,12-14 are in no zone"},
		"no memory":               {func(f map[string]string) { delete(f, node+"node2/meminfo") }, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 0MiB", "memory of zone 2"},
		"memory of a fool": {func(f map[string]string) {
			f[node+"node2/meminfo"] = "Node 2 MemTotal: 99999999999999 kB\nNode 2 MemFree: 0 kB\n"
		}, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 0MiB", "memory of zone 2"},
		"distances of another": {func(f map[string]string) { f[node+"node2/distance"] = "21 10 30\n" }, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 8192MiB", "has 3 distances"},
		"a far distance":       {func(f map[string]string) { f[node+"node2/distance"] = "21 far\n" }, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 8192MiB", `"far" is not a distance`},
		"huge pages of a fool": {func(f map[string]string) {
			f[node+"node2/hugepages/hugepages-2048kB/nr_hugepages"] = "18446744073709551615\n"
		}, "0: 0-3,8-10 16384MiB; 2: 4-7,12-14 8192MiB", "exceed the maximum"},
	} {
		t.Run(name, func(t *testing.T) {
			files := twoZoneFiles()
			test.change(files)

			m := readTestMachine(t, files)
			var zones []string
			for _, z := range m.Zones {
				zones = append(zones, fmt.Sprintf("%d: %s %dMiB", z.ID, z.CPUs, z.Memory>>20))
			}

			if got := strings.Join(zones, "; "); name != "no zones" && got != test.zones || name == "no zones" && !strings.HasPrefix(got, "0: 0-10,12-14") {
				t.Errorf("zones %s\nwant  %s", got, test.zones)
			}
			if got := strings.Join(m.Problems, "; "); !strings.Contains(got, test.problem) || (got == "") != (test.problem == "") {
				t.Errorf("problems %q, want %q", got, test.problem)
			}
			if _, err := m.Layout(m.CPUs()); err != nil {
				t.Error(err)
			}
		})
	}

	if m, err := ReadMachine(writeHost(t, nil)); err == nil {
		t.Errorf("ReadMachine without /sys = %+v, want an error", m)
	}
	if m, err := ReadMachine(writeHost(t, map[string]string{"sys/devices/system/cpu/online": "0-3\n", node + "node0/cpulist": "\n"})); err == nil {
		t.Errorf("ReadMachine without a CPU in any zone = %+v, want an error", m)
	}
}

// TestRecordedMachines reads recordings of real hosts.
func TestRecordedMachines(t *testing.T) {
	zones := map[string]int{"hybrid-cgroupfs": 1, "v2-systemd-containerd": 2, "v2-systemd-crio": 2}
	for _, name := range hostrecording.Nodes() {
		zones[name] = 1
	}

	for name, want := range zones {
		m, err := ReadMachine(host.Root(hostrecording.ForTest(t, name).Dir))
		if err != nil {
			t.Fatalf("ReadMachine of recording %s: %v", name, err)
		}

		if len(m.Zones) != want || m.Zones[0].Memory == 0 || m.Zones[0].CPUs.Len() == 0 || len(m.Zones[0].Distances) != want {
			t.Errorf("recording %s: ReadMachine = %+v, want %d zones, the first with memory, CPUs and distances", name, m, want)
		}
	}
}

// TestLayoutWithin checks a layout of a part of the CPUs.
func TestLayoutWithin(t *testing.T) {
	m := readTestMachine(t, twoZoneFiles())
	layout, err := m.Layout(numa.NewCPUSet(0, 8, 4, 99))
	if err != nil || layout.All().String() != "0,4,8" || layout.CountByZone(layout.All())["node2"] != 1 || layout.CountByZone(numa.NewCPUSet(4))["node2"] != 1 {
		t.Errorf("Layout = %v, %v, want CPUs 0, 4 and 8, of which 4 in node2", layout, err)
	}
}
