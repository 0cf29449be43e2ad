// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	numaDir = "/sys/devices/system/node"
	// near and far are the distances of a zone from itself and from another zone (ACPI SLIT).
	near = 10
	far  = 20
)

// fakeNUMA replaces sysfs' NUMA directory in this node, which the kubelet's CPU and topology managers read, by one with
// several zones. The kernel's memory policy does not change.
func fakeNUMA(zones []string) error {
	if len(zones) == 0 {
		return nil
	}

	total, err := memoryKiB()
	if err != nil {
		return fmt.Errorf("faking NUMA zones: %w", err)
	}

	if err := unix.Mount("numa", numaDir, "tmpfs", 0, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("faking NUMA zones: %w", err)
	}

	for i, cpus := range zones {
		if err := writeZone(i, len(zones), cpus, total/int64(len(zones))); err != nil {
			return fmt.Errorf("faking NUMA zone %d: %w", i, err)
		}
	}

	// The kernel writes a single number without a range.
	all := "0-" + strconv.Itoa(len(zones)-1)
	if len(zones) == 1 {
		all = "0"
	}

	for _, name := range []string{"online", "possible", "has_cpu", "has_memory", "has_normal_memory"} {
		if err := os.WriteFile(filepath.Join(numaDir, name), []byte(all+"\n"), 0o600); err != nil {
			return fmt.Errorf("faking NUMA zones: %w", err)
		}
	}

	return unix.Mount("", numaDir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func writeZone(zone, zones int, cpus string, memoryKiB int64) error {
	dir := filepath.Join(numaDir, "node"+strconv.Itoa(zone))
	if err := os.MkdirAll(filepath.Join(dir, "hugepages"), 0o755); err != nil {
		return err
	}

	list, err := ParseCPUs(cpus)
	if err != nil {
		return err
	}

	// The kubelet finds the CPUs of a zone by these links.
	for _, cpu := range list {
		name := "cpu" + strconv.Itoa(cpu)
		if err := os.Symlink("../../cpu/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}

	distances := make([]string, zones)
	for i := range distances {
		distances[i] = strconv.Itoa(far)
		if i == zone {
			distances[i] = strconv.Itoa(near)
		}
	}

	meminfo := fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        %d kB\n", zone, memoryKiB, zone, memoryKiB/2)
	for name, content := range map[string]string{
		"cpulist": cpus + "\n", "distance": strings.Join(distances, " ") + "\n", "meminfo": meminfo,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}

	return nil
}

// ParseCPUs parses a list of CPUs in the kernel's format, such as "0-2,4".
func ParseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}

		first, err1 := strconv.ParseUint(low, 10, 16)
		last, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || last < first || last > maxCPU {
			return nil, fmt.Errorf("%q is not a list of CPUs such as 0-2,4", list)
		}

		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}

	return cpus, nil
}

// maxCPU bounds the CPU numbers of a list: no kernel supports more.
const maxCPU = 8191

func memoryKiB() (int64, error) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "MemTotal:" {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}

	return 0, fmt.Errorf("no MemTotal in /proc/meminfo")
}
