// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/test/hostrecording"
)

func report(t *testing.T, dir string) map[string]string {
	t.Helper()

	layout, err := cgroup.Detect(host.Root(dir))
	o := observe.New(host.Root(dir), layout)
	defer o.Close()

	present := &layout
	if err != nil {
		present = nil
	}

	out := map[string]string{}
	for _, f := range List(Host{Root: host.Root(dir), KubeletRoot: "/var/lib/kubelet", Layout: present, LayoutError: err, UnusedReasons: map[string]string{MemoryHigh: "nobody asks"}}, o.Collect(time.Now())) {
		if f.State != On && f.Reason == "" {
			t.Errorf("%s is %s without a reason, want one", f.Name, f.State)
		}
		out[f.Name] = f.String()
	}

	return out
}

func TestReport(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-crio").Dir
	write := func(path, content string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("var/lib/kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0-3"}`)
	write("var/lib/kubelet/memory_manager_state", `{"policyName":`)
	write("run/crio/crio.sock", "")

	got := report(t, dir)
	for name, want := range map[string]string{
		"cgroups": "on: cgroup v2, driver systemd", "pods": "on: in kubepods.slice", "pod-pressure": "on", "memory-high": "off: nobody asks",
		"memory-reclaim": "unsupported: the kernel is too old", "numa": "on: 2 zones", "interference": "on: by the pressure of pods", "kubelet-cpu-manager": "on: policy static",
		"kubelet-memory-manager": "unsupported: memory_manager_state: ", "cpi": "unsupported: no hardware performance counters", "pod-disks": "on", "runtime": "off: /run/crio/crio.sock", "network": "on", "disks": "on", "node-pressure": "on",
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}

	for name, want := range map[string]string{
		"run-queue-wait": "unsupported: the kernel has no schedstat", "cpi": "unsupported: no hardware performance counters",
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}

	// Another PID namespace, and this one.
	write("proc/1/schedstat", "1 2 3\n")
	write(fmt.Sprintf("proc/%d/schedstat", os.Getpid()), "1 2 3\n")

	for pid, want := range map[int]string{1: "unsupported: the agent is not in the host's PID namespace", os.Getpid(): "on: sampled where"} {
		if pid == os.Getpid() && pid == 1 {
			continue
		}

		link := filepath.Join(dir, "proc/self")
		_ = os.Remove(link)

		if err := os.Symlink(strconv.Itoa(pid), link); err != nil {
			t.Fatal(err)
		}

		if got := report(t, dir)["run-queue-wait"]; !strings.HasPrefix(got, want) {
			t.Errorf("with PID %d: %q, want %q", pid, got, want)
		}
	}

	// The same host without PSI.
	if err := os.RemoveAll(filepath.Join(dir, "proc/pressure")); err != nil {
		t.Fatal(err)
	}

	if got := report(t, dir)["node-pressure"]; got != "unsupported: the kernel was built without PSI, or started with psi=0" {
		t.Errorf("node-pressure without PSI is %q, want it unsupported by the kernel", got)
	}
}

func TestEmptyHost(t *testing.T) {
	got := report(t, t.TempDir())
	for name, f := range got {
		if !strings.HasPrefix(f, string(Unsupported)+": ") {
			t.Errorf("%s is %q on an empty host, want it unsupported", name, f)
		}
	}

	if !strings.Contains(got["cgroups"], cgroup.ErrNoCgroups.Error()) {
		t.Errorf("cgroups is %q, want %v", got["cgroups"], cgroup.ErrNoCgroups)
	}
}
