// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// countableGroup returns the directory of the cgroup of this process in a hierarchy with perf events.
func countableGroup(t *testing.T) string {
	t.Helper()

	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip("no /proc/self/cgroup: ", err)
	}

	for line := range strings.Lines(string(content)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}

		roots := []string{}
		switch {
		case strings.Contains(parts[1], "perf_event"):
			roots = []string{"/sys/fs/cgroup/" + parts[1]}
		case parts[0] == "0":
			roots = []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}
		}

		for _, root := range roots {
			dir := filepath.Join(root, parts[2])
			if c, err := clockEvents().open(dir, firstOnlineCPU(t)); err == nil {
				c.close()
				return dir
			}
		}
	}

	t.Skip("no cgroup of this test can be counted here: ", refusalReason("/", "/sys/fs/cgroup/unified", firstOnlineCPU(t), clockEvents(), clockEvents()))
	return ""
}

func firstOnlineCPU(t *testing.T) int {
	t.Helper()

	cpus, err := listOnlineCPUs("/")
	if err != nil {
		t.Skip("online CPUs are unknown: ", err)
	}

	return cpus[0]
}

// processCPUTime returns the CPU time of this process.
func processCPUTime(t *testing.T) time.Duration {
	t.Helper()

	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func countPerfDescriptors(t *testing.T) (n int) {
	t.Helper()

	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "perf_event") {
			n++
		}
	}

	return n
}

// spin keeps a CPU busy until this process has used so much more CPU time.
func spin(t *testing.T, span time.Duration) uint64 {
	t.Helper()

	x := uint64(1)
	for start := processCPUTime(t); processCPUTime(t)-start < span; {
		for range 1 << 20 {
			x = x*6364136223846793005 + 1
		}
	}

	return x
}

// TestClocks counts this process with the kernel's perf events: two clocks instead of cycles and instructions, which need hardware
// counters.
func TestClocks(t *testing.T) {
	dir := countableGroup(t)
	cpus, err := listOnlineCPUs("/")
	if err != nil {
		t.Fatal(err)
	}

	before := countPerfDescriptors(t)
	list := make([]counter, 0, len(cpus))
	for _, cpu := range cpus {
		c, err := clockEvents().open(dir, cpu)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()

		list = append(list, c)
	}

	if n := countPerfDescriptors(t) - before; n != 2*len(cpus) {
		t.Errorf("%d open descriptors, want %d for %d CPUs", n, 2*len(cpus), len(cpus))
	}

	start := processCPUTime(t)
	x := spin(t, 200*time.Millisecond)
	own := processCPUTime(t) - start

	var all totals
	for _, c := range list {
		n, err := c.read()
		if errors.Is(err, errNoTimes) {
			t.Skip("this process runs in ", dir, ": ", err)
		}
		if err != nil {
			t.Fatal(err)
		}

		all.add(n)
	}

	ratio, ok := all.cyclesPerInstruction()
	t.Logf("this process was on CPUs for %s, its cgroup for %s; the other clock says %s, their ratio is %.3f (%d)", own,
		time.Duration(all.cycles), time.Duration(all.instructions), ratio, x&1)

	// Other processes of the cgroup are counted as well, by both clocks.
	if all.instructions < 0.5*float64(own) || !ok || ratio < 0.5 || ratio > 2 {
		t.Errorf("counted %+v, want at least half of the %s of this process and similar clocks", all, own)
	}

	for i, c := range list {
		c.close()
		if _, err := c.read(); err == nil {
			t.Errorf("read of closed counter %d = nil, want an error", i)
		}
	}

	if n := countPerfDescriptors(t) - before; n != 0 {
		t.Errorf("%d descriptors are open, want none", n)
	}
}

// TestRefused checks the reasons for which a host cannot count.
func TestRefused(t *testing.T) {
	dir := countableGroup(t)
	cpu := firstOnlineCPU(t)
	none := events{eventType: unix.PERF_TYPE_HARDWARE, cycles: 1 << 30, instructions: 1 << 30}
	for want, why := range map[string]string{
		"":                                  refusalReason("/", dir, cpu, clockEvents(), clockEvents()),
		"no hardware performance counters:": refusalReason("/", dir, cpu, clockEvents(), none),
		"no perf_event cgroup at ":          refusalReason("/", t.TempDir(), cpu, clockEvents(), clockEvents()),
	} {
		if want == "" && why != "" || !strings.HasPrefix(why, want) {
			t.Errorf("%q, want %q", why, want)
		}
	}

	t.Logf("cycles and instructions on this host: %q", refusalReason("/", dir, cpu, clockEvents(), hardwareEvents()))
	root := t.TempDir()
	if got := readParanoidLevel(host.Root(root)); !strings.Contains(got, "unknown") {
		t.Errorf("readParanoidLevel without a file = %q, want unknown", got)
	}

	file := filepath.Join(root, "proc/sys/kernel/perf_event_paranoid")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(file, []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if got := readParanoidLevel(host.Root(root)); got != "kernel.perf_event_paranoid is 2" {
		t.Errorf("readParanoidLevel = %q, want level 2", got)
	}
}

// TestHardware counts cycles and instructions where the CPU has counters.
func TestHardware(t *testing.T) {
	dir := countableGroup(t)
	cpu := firstOnlineCPU(t)
	if why := refusalReason("/", dir, cpu, clockEvents(), hardwareEvents()); why != "" {
		t.Skip(why)
	}

	c, err := openHardware(dir, cpu)
	if err != nil {
		t.Fatal(err)
	}

	c.close()
}

// TestUnsupportedHosts checks the reasons for hosts that lack pods or the cgroup hierarchy.
func TestUnsupportedHosts(t *testing.T) {
	for want, layout := range map[string]cgroup.Layout{
		"no kubepods cgroup":                     {Version: cgroup.V2},
		"cgroup v1 has no controller perf_event": {Version: cgroup.V1, Pods: "kubepods"},
	} {
		if got := UnsupportedReason(host.Root(t.TempDir()), layout); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
