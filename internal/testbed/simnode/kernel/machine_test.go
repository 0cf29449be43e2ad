// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

const (
	webUID = "11111111-1111-1111-1111-111111111111"
	hogUID = "22222222-2222-2222-2222-222222222222"
)

func containerID(digit string) string { return strings.Repeat(digit, 64) }

// newMachine returns a machine of 4 CPUs and 16 GiB with a Burstable web server of one core and a BestEffort hog.
func newMachine(t *testing.T, spec Spec) (*Machine, *clocktesting.FakeClock) {
	t.Helper()

	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
	m, err := NewMachine(t.TempDir(), spec, clk)
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range []Pod{
		{UID: webUID, Class: "Burstable", Containers: []Container{{ID: containerID("1"), RequestCPU: 1000, LimitCPU: 2000, LimitMem: 1 << 30, Demand: Load{CPU: 1, Anon: 256 * mebi}}}},
		{UID: hogUID, Class: "BestEffort", Containers: []Container{{ID: containerID("2"), Demand: Load{CPU: 8, Anon: 512 * mebi, File: 1024 * mebi}}}},
	} {
		if err := m.AddPod(p); err != nil {
			t.Fatal(err)
		}
	}

	return m, clk
}

func (m *Machine) read(t *testing.T, path string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(m.dir, path))
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}

func advance(t *testing.T, m *Machine, clk *clocktesting.FakeClock, by time.Duration) map[string]Use {
	t.Helper()

	clk.Step(by)
	got, err := m.Advance()
	if err != nil {
		t.Fatal(err)
	}

	return got
}

// TestMachine: pods share CPU by weights and limits, and /proc reflects it.
func TestMachine(t *testing.T) {
	for name, spec := range map[string]Spec{"v2": {}, "v2 systemd": {Systemd: true}, "v1": {V1: true}} {
		t.Run(name, func(t *testing.T) {
			m, clk := newMachine(t, spec)
			got := advance(t, m, clk, 10*time.Second)

			web := got[containerID("1")]
			hog := got[containerID("2")]
			if web.CPU != 1 || math.Abs(hog.CPU-3) > 1e-9 {
				t.Errorf("Advance: web has %g cores, the hog %g; want 1 and 3", web.CPU, hog.CPU)
			}
			if stat := m.read(t, "proc/stat"); !strings.HasPrefix(stat, "cpu  4000 0 0 0 ") {
				t.Errorf("proc/stat = %s, want 4000 busy ticks", stat)
			}

			// 16 GiB minus 768 MiB; a GiB of it is cache.
			if info := m.read(t, "proc/meminfo"); !strings.Contains(info, "MemAvailable:   15990784 kB") || !strings.Contains(info, "MemFree:        14942208 kB") {
				t.Errorf("proc/meminfo = %s, want 15990784 kB available and 14942208 kB free", info)
			}

			if p := m.read(t, "proc/pressure/cpu"); strings.HasPrefix(p, "some avg10=0.00") {
				t.Errorf("proc/pressure/cpu = %s, want stall time", p)
			}

			// The web server gets its core whatever the hog demands.
			if err := m.SetDemand(webUID, containerID("1"), Load{CPU: 4, Anon: 256 * mebi}); err != nil {
				t.Fatal(err)
			}

			if web = advance(t, m, clk, time.Second)[containerID("1")]; web.CPU != 2 {
				t.Errorf("Advance: web has %g cores, want its limit of 2", web.CPU)
			}
			if err := m.RemovePod(hogUID); err != nil {
				t.Fatal(err)
			}

			if got = advance(t, m, clk, time.Second); len(got) != 1 {
				t.Errorf("Advance after RemovePod = %v, want the use of web only", got)
			}
			if info := m.read(t, "proc/meminfo"); !strings.Contains(info, "MemAvailable:   16515072 kB") {
				t.Errorf("proc/meminfo after RemovePod = %s, want 16515072 kB available", info)
			}
			if got = advance(t, m, clk, 0); len(got) != 0 {
				t.Errorf("Advance at the same time = %v, want no use", got)
			}
		})
	}
}

// TestMachineBelowMemoryHigh: a limit that an agent writes takes effect and is visible in the pod's pressure.
func TestMachineBelowMemoryHigh(t *testing.T) {
	m, clk := newMachine(t, Spec{})
	advance(t, m, clk, time.Second)

	group := m.ContainerGroup(m.PodGroup(hogUID, "BestEffort"), containerID("2"))
	if err := m.set(group, "memory.high", "768M"); err != nil {
		t.Fatal(err)
	}

	if got := advance(t, m, clk, time.Second)[containerID("2")]; got.File != 256*mebi || got.Stalled != 0.5 {
		t.Errorf("use above memory.high = %+v, want 256 MiB of page cache and half of the time stalled", got)
	}
	if p := text(filepath.Join(m.tree.Dir, filepath.Dir(group)), "memory.pressure"); !strings.HasPrefix(p, "some avg10=4.76") {
		t.Errorf("memory.pressure of the pod = %s, want avg10 4.76", p)
	}
	if p := m.read(t, "proc/pressure/memory"); !strings.HasPrefix(p, "some avg10=4.76") || !strings.Contains(p, "full avg10=0.00") {
		t.Errorf("proc/pressure/memory = %s, want avg10 4.76 for some and 0.00 for full", p)
	}
}

func TestMachineZones(t *testing.T) {
	m, _ := newMachine(t, Spec{CPUs: 8, Zones: 2, ThreadsPerCore: 2})
	for path, want := range map[string]string{
		"sys/devices/system/node/node1/cpulist":                         "4-7\n",
		"sys/devices/system/node/node1/distance":                        "20 10\n",
		"sys/devices/system/cpu/online":                                 "0-7\n",
		"sys/devices/system/cpu/cpu5/topology/thread_siblings_list":     "4-5\n",
		"sys/devices/system/cpu/cpu5/topology/physical_package_id":      "1\n",
		"sys/fs/cgroup/kubepods/cpuset.mems.effective":                  "0-1\n",
		"sys/fs/cgroup/kubepods/burstable/pod" + webUID + "/cpu.weight": "39\n",
		"sys/fs/cgroup/kubepods/besteffort/cpu.weight":                  "1\n",
	} {
		if got := m.read(t, path); got != want {
			t.Errorf("%s = %q, want %q", path, got, want)
		}
	}
}
