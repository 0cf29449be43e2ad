// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// fixed returns the constant files of a machine by path below its root.
func (m *Machine) fixed() map[string]string {
	s := m.spec
	driver := "cgroupfs"
	if s.Systemd {
		driver = "systemd"
	}

	online := m.tree.CPUs + "\n"
	files := map[string]string{
		"proc/cpuinfo":                         m.cpuinfo(),
		"proc/1/net/dev":                       "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
		"proc/sys/kernel/osrelease":            "6.12.0-simulated\n",
		"sys/block/vda/stat":                   "0 0 0 0 0 0 0 0 0 0 0\n",
		"sys/devices/system/cpu/online":        online,
		"sys/devices/system/cpu/present":       online,
		"sys/devices/system/cpu/possible":      online,
		"sys/devices/system/node/online":       m.tree.Mems + "\n",
		"var/lib/kubelet/config.yaml":          "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: " + driver + "\ncpuManagerPolicy: " + s.CPUPolicy + "\nmemoryManagerPolicy: None\n",
		"var/lib/kubelet/cpu_manager_state":    `{"policyName":"` + s.CPUPolicy + `","defaultCpuSet":"","checksum":1353318690}` + "\n",
		"var/lib/kubelet/memory_manager_state": `{"policyName":"None","machineState":{},"checksum":0}` + "\n",
		"run/containerd/containerd.sock":       "",
	}

	// Pressure starts at zero and changes with Advance.
	for _, resource := range []string{"cpu", "memory", "io"} {
		files["proc/pressure/"+resource] = noPressure
	}

	// CPUs and their threads are numbered consecutively within a zone.
	perZone := (s.CPUs + s.Zones - 1) / s.Zones
	for c := range s.CPUs {
		topology := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", c)
		core := c / s.ThreadsPerCore
		files[topology+"core_id"] = fmt.Sprintf("%d\n", core)
		files[topology+"physical_package_id"] = fmt.Sprintf("%d\n", c/perZone)
		files[topology+"thread_siblings_list"] = fmt.Sprintf("%d-%d\n", core*s.ThreadsPerCore, min((core+1)*s.ThreadsPerCore, s.CPUs)-1)
	}

	for z := range s.Zones {
		var distances []string
		for other := range s.Zones {
			distances = append(distances, map[bool]string{true: "10", false: "20"}[other == z])
		}

		files[fmt.Sprintf("sys/devices/system/node/node%d/distance", z)] = strings.Join(distances, " ") + "\n"
		files[fmt.Sprintf("sys/devices/system/node/node%d/cpulist", z)] = fmt.Sprintf("%d-%d\n", z*perZone, min((z+1)*perZone, s.CPUs)-1)
	}

	return files
}

func (m *Machine) cpuinfo() string {
	var b strings.Builder
	for c := range m.spec.CPUs {
		fmt.Fprintf(&b, "processor\t: %d\nmodel name\t: simulated\ncpu MHz\t\t: 2000.000\n\n", c)
	}

	return b.String()
}

// show writes the files that change with time.
func (m *Machine) show(t tick) error {
	root := strings.Split(m.classGroup("Guaranteed"), "/")[0]
	pods, err := m.tree.usage(root)
	if err != nil {
		return err
	}

	// Page cache is available, but not free.
	available := max(m.spec.Memory-m.spec.System.Anon-pods.anon, 0)
	free := max(available-pods.file()-m.spec.System.File, 0)
	cached := available - free
	const kib = 1 << 10

	files := map[string]string{
		"proc/stat": m.stat(),
		"proc/meminfo": fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\nBuffers:        0 kB\nCached:         %d kB\n",
			m.spec.Memory/kib, free/kib, available/kib, cached/kib),
		"proc/loadavg":   fmt.Sprintf("%.2f %.2f %.2f 1/%d %d\n", m.load[0], m.load[1], m.load[2], len(m.pods)+1, m.pid),
		"proc/diskstats": fmt.Sprintf(" 254       0 vda %.0f 0 %.0f 0 %.0f 0 %.0f 0 0 0 0\n", m.reads/operation, m.reads/512, m.writes/operation, m.writes/512),
	}

	zones := int64(m.spec.Zones)
	for z := range m.spec.Zones {
		files[fmt.Sprintf("sys/devices/system/node/node%d/meminfo", z)] = fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        %d kB\nNode %d FilePages:      %d kB\nNode %d Shmem:          0 kB\n",
			z, m.spec.Memory/zones/kib, z, free/zones/kib, z, cached/zones/kib, z)
	}

	for _, p := range m.pods {
		for _, c := range p.Containers {
			if pid := p.pids[c.ID]; pid > 0 {
				files[fmt.Sprintf("proc/%d/schedstat", pid)] = fmt.Sprintf("1 %d 1\n", p.waits[c.ID])
			}
		}
	}

	var errs []error
	for name, content := range files {
		errs = append(errs, writeFile(filepath.Join(m.dir, name), content))
	}

	// The waits are averages over the span; there is none before the first Advance.
	if t.span > 0 {
		errs = append(errs,
			addPressure(filepath.Join(m.dir, "proc/pressure/cpu"), t.waited, 0, t.span),
			addPressure(filepath.Join(m.dir, "proc/pressure/memory"), t.stalled, t.allStalled, t.span),
			addPressure(filepath.Join(m.dir, "proc/pressure/io"), max(t.stalled, t.diskWaited), t.allStalled, t.span))
	}

	return errors.Join(errs...)
}

func (m *Machine) stat() string {
	var b strings.Builder
	line := func(name string, parts float64) {
		fmt.Fprintf(&b, "%s %.0f 0 0 %.0f 0 0 0 0 0 0\n", name, m.busy/parts, m.idle/parts)
	}
	line("cpu ", 1)

	for c := range m.spec.CPUs {
		line(fmt.Sprintf("cpu%d", c), float64(m.spec.CPUs))
	}

	b.WriteString("ctxt 0\nbtime 1767571200\nprocesses 1\n")
	return b.String()
}
