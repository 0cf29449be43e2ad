// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"os"
	"path/filepath"
	"testing"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/test/hostrecording"
)

// TestCycles checks the feature for each flag and each result of the probe.
func TestCycles(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	layout, err := cgroup.Detect(host.Root(dir))
	if err != nil {
		t.Fatal(err)
	}

	h := Host{Root: host.Root(dir), Layout: &layout}
	is := func(want string) {
		t.Helper()

		if got := h.cyclesPerInstruction().String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	is("unsupported: no hardware performance counters: the kernel has no device cpu in /sys/bus/event_source/devices")
	if err := os.MkdirAll(filepath.Join(dir, "sys/bus/event_source/devices/cpu"), 0o755); err != nil {
		t.Fatal(err)
	}

	is("off: the agent runs without --cycles-per-instruction")
	why := "perf_event_open is not allowed"
	h.CyclesUnsupported = func() string { return why }
	is("unsupported: perf_event_open is not allowed")
	why = ""
	is("on: counted of latency-sensitive pods")
	h.Layout = nil
	is("unsupported: there are no pods")
}
