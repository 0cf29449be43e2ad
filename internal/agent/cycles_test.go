// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/perf"
)

// TestSensitivePods checks that cycles are counted for latency-sensitive pods only, in their own cgroups, and not without the flag.
func TestSensitivePods(t *testing.T) {
	n := newInterferenceFixture(t, false)
	if list := n.parts.countCycles(n.loop); list != nil {
		t.Errorf("countCycles without the flag returned %d managers, want none", len(list))
	}
	if n.parts.cyclesUnsupported(&n.parts.layout) != nil {
		t.Error("cyclesUnsupported without the flag returned a check, want nil")
	}

	sensitive := func() []perf.Target {
		return sensitivePods(n.parts.latest.Load(), n.parts.newInventory(n.loop.view.State()), n.parts.layout)
	}

	if got := sensitive(); got != nil {
		t.Errorf("before the first measurement the sensitive pods are %v, want none", got)
	}

	n.tick(1)
	got := sensitive()
	if len(got) != 1 || !strings.HasPrefix(got[0].UID, "11111111-") || !strings.HasSuffix(got[0].Dir, "/sys/fs/cgroup/kubepods/burstable/pod"+got[0].UID) {
		t.Errorf("%+v, want the web server's group", got)
	}

	n.parts.Cycles = true
	list := n.parts.countCycles(n.loop)
	if len(list) != 1 || list[0].Name() != "cpi" {
		t.Errorf("countCycles returned %+v, want the manager cpi", list)
	}

	n.tick(1)
	if s := n.parts.latest.Load(); s.Pods[0].Cycles.OK {
		t.Errorf("cycles of a pod that was never counted are %+v, want unknown", s.Pods[0].Cycles)
	}

	// A plain directory is not a cgroup; the reason names it, or the lack of support by this host.
	if why := n.parts.cyclesUnsupported(&n.parts.layout)(); why == "" {
		t.Error("cyclesUnsupported of a simulated host is empty, want a reason")
	}
	if n.parts.cyclesUnsupported((*cgroup.Layout)(nil)) != nil {
		t.Error("cyclesUnsupported without cgroups returned a check, want nil")
	}
}
