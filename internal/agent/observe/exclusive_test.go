// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
	"crane.io/crane/test/hostrecording"
)

// writeStat writes busy and idle ticks per CPU.
func writeStat(t *testing.T, dir string, cpus ...[2]int) {
	t.Helper()

	var text strings.Builder
	text.WriteString("cpu 1 0 0 1\n")

	for i, c := range cpus {
		fmt.Fprintf(&text, "cpu%d %d 0 0 %d\n", i, c[0], c[1])
	}
	writeFile(t, filepath.Join(dir, "proc/stat"), text.String())
}

// TestExclusiveIdle measures the idle part of exclusive CPUs of the kubelet and of another CPU manager.
func TestExclusiveIdle(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	o := newObserver(t, dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	look := func() Node { now = now.Add(10 * time.Second); return o.Collect(now).Node }
	state := func(content string) { writeFile(t, filepath.Join(dir, defaultKubeletDir, kubeletStateFile), content) }
	writeStat(t, dir, [2]int{0, 0}, [2]int{0, 0}, [2]int{0, 0}, [2]int{0, 0})

	if n := look(); n.ExclusiveIdle.OK || n.ExclusiveUnknown {
		t.Errorf("without a CPU manager ExclusiveIdle is %+v, want unknown", n.ExclusiveIdle)
	}

	state(`{"policyName":"none","defaultCpuSet":"","checksum":1}`)
	if n := look(); n.ExclusiveIdle.OK || n.ExclusiveUnknown {
		t.Errorf("with policy none ExclusiveIdle is %+v, want unknown", n.ExclusiveIdle)
	}

	state(`{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`)
	if n := look(); !n.ExclusiveIdle.OK || n.ExclusiveIdle.Value != 0 {
		t.Errorf("without exclusive CPUs ExclusiveIdle is %+v, want 0", n.ExclusiveIdle)
	}

	state(`{"policyName":"static","defaultCpuSet":"0,3","entries":{"uid":{"main":"1"}},"podEntries":{"other":{"cpuSet":"2-3"}},"checksum":1}`)
	if n := look(); n.ExclusiveIdle.OK || !n.ExclusiveUnknown {
		t.Errorf("in the first measurement ExclusiveIdle is %+v, want unknown", n.ExclusiveIdle)
	}

	// CPU 1 is a quarter idle, 2 completely; 3 is shared.
	writeStat(t, dir, [2]int{500, 500}, [2]int{750, 250}, [2]int{0, 1000}, [2]int{0, 1000})

	if n := look(); !n.ExclusiveIdle.OK || n.ExclusiveUnknown || n.ExclusiveIdle.Value != 1250 {
		t.Errorf("%+v, want 1250m", n.ExclusiveIdle)
	}

	o.SetExclusiveCPUs(func() (numa.CPUSet, bool) { return numa.NewCPUSet(0), true })
	look()
	writeStat(t, dir, [2]int{1000, 1000}, [2]int{850, 1150}, [2]int{0, 2000}, [2]int{0, 2000})

	if n := look(); !n.ExclusiveIdle.OK || n.ExclusiveIdle.Value != 500+900+1000 {
		t.Errorf("%+v, want 2400m", n.ExclusiveIdle)
	}
	// Ticks that decrease or do not change yield no value.
	if n := look(); n.ExclusiveIdle.OK {
		t.Errorf("with unchanged ticks ExclusiveIdle is %+v, want unknown", n.ExclusiveIdle)
	}

	writeStat(t, dir, [2]int{0, 0}, [2]int{0, 0}, [2]int{0, 0}, [2]int{0, 0})
	if n := look(); n.ExclusiveIdle.OK {
		t.Errorf("with decreased ticks ExclusiveIdle is %+v, want unknown", n.ExclusiveIdle)
	}

	// A truncated checkpoint yields no value until it is complete.
	state(`{"policyName":"static","defaultCpuSet":"0`)

	if n := look(); n.ExclusiveIdle.OK || !n.ExclusiveUnknown || !strings.Contains(o.snapshot.Problems["exclusive cpus"], "cpu_manager_state") {
		t.Errorf("with half a checkpoint ExclusiveIdle is %+v, problems %v; want unknown and cpu_manager_state", n.ExclusiveIdle, o.snapshot.Problems)
	}

	state(`{"policyName":"static","defaultCpuSet":"3","entries":{"uid":{"main":"9-1"}}}`)
	if n := look(); n.ExclusiveIdle.OK || o.snapshot.Problems["exclusive cpus"] == "" {
		t.Errorf("with an invalid list ExclusiveIdle is %+v, problems %v; want unknown and a problem", n.ExclusiveIdle, o.snapshot.Problems)
	}
}

// TestExclusivePods checks which pods run on exclusive CPUs.
func TestExclusivePods(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	o := newObserver(t, dir)
	o.SetKubelet("srv/kubelet", nil)
	now := time.Now()

	s := o.Collect(now)
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			cpus := map[string]string{guaranteed: "2-3\n", burstable: "0-3\n"}[p.UID]
			if cpus == "" {
				cpus = "\n" // as for a sandbox
			}

			writeFile(t, filepath.Join(dir, "sys/fs/cgroup", c.Path, "cpuset.cpus"), cpus)
		}
	}

	own := func() (uids []string) {
		now = now.Add(kubeletStateInterval)
		for _, p := range o.Collect(now).Pods {
			if p.HasExclusiveCPUs {
				uids = append(uids, p.UID)
			}
		}

		return uids
	}

	if got := own(); len(got) > 0 {
		t.Errorf("without a CPU manager pods %v have exclusive CPUs, want none", got)
	}

	writeFile(t, filepath.Join(dir, "srv/kubelet", kubeletStateFile), `{"policyName":"static","defaultCpuSet":"0-1","entries":{"x":{"main":"2-3"}}}`)
	if got := own(); len(got) != 1 || got[0] != guaranteed {
		t.Errorf("pods %v have exclusive CPUs, want %s", got, guaranteed)
	}

	writeFile(t, filepath.Join(dir, "srv/kubelet", kubeletStateFile), `{"policyName":"static","defaultCpuSet":"0-2","entries":{"x":{"main":"3"}}}`)
	if got := own(); len(got) > 0 {
		t.Errorf("pods %v have exclusive CPUs, want none: one of them is shared", got)
	}
}

// TestZones reads NUMA nodes with gaps in their numbers, a hot-plugged one and an unreadable one.
func TestZones(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	o := newObserver(t, dir)

	now := time.Now()
	n := o.Collect(now).Node
	if len(n.Zones) != 2 || n.Zones[0].ID != 0 || n.Zones[1].ID != 2 || n.Zones[1].Memory.Value != (host.ZoneMemory{Total: 8192000 << 10, Free: 1024000 << 10}) {
		t.Fatalf("zones are %+v, want 0 and 2 with the recorded memory", n.Zones)
	}

	writeFile(t, filepath.Join(dir, host.ZonesDir, "node1/meminfo"), "Node 1 MemTotal: 100 kB\nNode 1 MemFree: 10 kB\nNode 1 FilePages: 50 kB\nNode 1 Shmem: 20 kB\n")
	writeFile(t, filepath.Join(dir, host.ZonesDir, "node2/meminfo"), "Node 2 MemTotal: 100")
	writeFile(t, filepath.Join(dir, host.ZonesDir, "node9999/meminfo"), "")
	writeFile(t, filepath.Join(dir, host.ZonesDir, "power/x"), "")

	for range measurementsPerZoneList {
		now = now.Add(time.Second)
		n = o.Collect(now).Node
	}

	if len(n.Zones) != 3 || n.Zones[1].ID != 1 || n.Zones[1].Memory.Value.Used() != 60<<10 || n.Zones[2].Memory.OK || o.snapshot.Problems["numa"] == "" {
		t.Errorf("zones are %+v, problems %v; want the new zone 1, and zone 2 unreadable", n.Zones, o.snapshot.Problems)
	}
}

// FuzzKubeletState checks that no CPU is both shared and exclusive for any content.
func FuzzKubeletState(f *testing.F) {
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0,3","entries":{"uid":{"main":"1-3"}},"podEntries":{"x":{"cpuSet":"2"}},"checksum":1}`))
	f.Add([]byte(`{"policyName":"none","defaultCpuSet":""}`))
	f.Add([]byte(`{"policyName":"Static","entries":{"a":null},"podEntries":{"x":{}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		cpus, static, err := parseKubeletState(content)
		if err != nil && (static || cpus.Len() > 0) || !static && cpus.Len() > 0 {
			t.Errorf("parseKubeletState = %v, %t, %v, want CPUs only with a static policy and no error", cpus, static, err)
		}
	})
}

// TestExclusivePodsWhileUnknown checks that pods on exclusive CPUs still count as such while the kubelet's checkpoint cannot be read.
func TestExclusivePodsWhileUnknown(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	o := newObserver(t, dir)
	o.SetKubelet("srv/kubelet", nil)
	checkpoint := filepath.Join(dir, "srv/kubelet/cpu_manager_state")
	writeFile(t, checkpoint, `{"policyName":"static","defaultCpuSet":"0-1","entries":{"uid":{"main":"2-3"}}}`)

	now := time.Now()
	for _, p := range o.Collect(now).Pods {
		for _, c := range p.Containers {
			cpus := "0-1\n"
			if p.UID == guaranteed {
				cpus = "2-3\n"
			}

			writeFile(t, filepath.Join(dir, "sys/fs/cgroup", c.Path, "cpuset.cpus"), cpus)
		}
	}

	for _, content := range []string{"", `{"policyName":"static","defaultCpuSet":"0`} {
		if content != "" {
			writeFile(t, checkpoint, content)
		}

		now = now.Add(kubeletStateInterval)
		for _, p := range o.Collect(now).Pods {
			if p.HasExclusiveCPUs != (p.UID == guaranteed) {
				t.Errorf("checkpoint %q: HasExclusiveCPUs of pod %s = %t, want %t", content, p.UID, p.HasExclusiveCPUs, p.UID == guaranteed)
			}
		}
	}
}

// TestExclusiveIdle_Socket checks that without the kubelet's checkpoint its socket has the exclusive CPUs, that they stay exclusive while it does not
// answer, and that a node without a kubelet has none.
func TestExclusiveIdle_Socket(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	o := newObserver(t, dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	assignments := kubeletsocket.Assignments{StaticCPUs: true, CPUs: numa.NewCPUSet(1)}
	var problem error
	o.SetKubelet("", func() (kubeletsocket.Assignments, error) {
		if problem != nil {
			return kubeletsocket.Assignments{}, problem
		}

		return assignments, nil
	})

	collect := func(ticks int) Known[units.MilliCPU] {
		now = now.Add(kubeletStateInterval)
		writeStat(t, dir, [2]int{ticks, ticks}, [2]int{ticks, 3 * ticks})
		return o.Collect(now).Node.ExclusiveIdle
	}

	collect(0)
	if got := collect(100); got != known(units.MilliCPU(750)) {
		t.Errorf("Collect with CPU 1 exclusive: ExclusiveIdle = %+v, want 750m", got)
	}

	problem = errors.New("no answer")
	if got := collect(200); got.OK || !o.exclusive.cpus.Contains(1) || o.snapshot.Problems["exclusive cpus"] != "no answer" {
		t.Errorf("Collect without an answer: ExclusiveIdle = %+v, exclusive CPUs %s, problems %v; want unknown, CPU 1 and the error",
			got, o.exclusive.cpus, o.snapshot.Problems)
	}

	problem = fs.ErrNotExist
	if got := collect(300); got.OK || o.exclusive.cpus.Len() > 0 || o.snapshot.Problems["exclusive cpus"] != "" {
		t.Errorf("Collect without a kubelet: ExclusiveIdle = %+v, exclusive CPUs %s, problems %v; want unknown and none",
			got, o.exclusive.cpus, o.snapshot.Problems)
	}
}
