// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/units"
)

// forEachVersion runs a test on both versions of cgroups; all is the CPU list of a container that was never changed.
func forEachVersion(t *testing.T, test func(t *testing.T, b *fixture, all string)) {
	t.Helper()
	t.Run("v2", func(t *testing.T) { test(t, newFixture(t, false), "") })
	t.Run("v1", func(t *testing.T) { test(t, newFixture(t, true), "0-7") })
}

// TestExclusive checks that exclusive containers get whole cores of their own with memory nearby, and release them.
func TestExclusive(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, all string) {
		b.runPod("other", "", 0)
		b.advance()
		b.expectCPUs("no exclusive CPUs", "other/a="+all, "other/sandbox="+all)
		web := b.runPod("web", "node0=2,node1=2", 2, 2, 0)
		b.advance()
		b.expectCPUs("alone", "web/a=0-1", "web/b=4-5", "web/c=2-3,6-7", "web/sandbox=2-3,6-7", "other/a=2-3,6-7", "other/sandbox=2-3,6-7")

		if b.mems("web", "a") != "0" || b.mems("web", "b") != "1" || b.mems("web", "c") != b.mems("other", "a") {
			t.Errorf("memory nodes of a, b and c are %q, %q and %q; want 0, 1 and unbound", b.mems("web", "a"), b.mems("web", "b"), b.mems("web", "c"))
		}
		if !b.reported("web CPUsAssigned: container a runs on CPUs 0-1 by policy exclusive") {
			t.Errorf("events are %v, want the assignment of CPUs 0-1", b.events)
		}
		if s := b.Status(); !s.Active || s.Exclusive.String() != "0-1,4-5" || s.Shared.String() != "2-3,6-7" || s.Containers != 2 {
			t.Errorf("Status() = %+v, want exclusive 0-1,4-5, shared 2-3,6-7 and 2 containers", s)
		}

		b.runPod("late", "", 0)
		b.advance()
		b.expectCPUs("a pod that comes later", "late/a=2-3,6-7")
		writes := len(b.writes)

		for range 12 {
			b.advance()
		}

		if len(b.writes) != writes {
			t.Errorf("further steps wrote %s, want nothing", b.writes[writes:])
		}

		web.Status.Phase = corev1.PodSucceeded
		b.invalidateState()
		b.advance()

		if all == "" {
			all = "0-7" // Kernels before 6.17 do not accept an empty list for a group with processes.
		}

		b.expectCPUs("handed back", "web/a="+all, "web/c="+all, "other/a="+all, "late/a="+all, "other/sandbox="+all)
		if e := b.config.Journal.Entries(); len(e) > 0 {
			t.Errorf("the journal has %+v, want no entries", e)
		}
	})
}

// TestOrder checks that containers that lose CPUs are written before those that get them exclusively.
func TestOrder(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	b.runPod("other", "", 0)
	b.advance()

	if got := strings.Join(b.writes, " "); got != "cpuset.cpus=2-7 cpuset.cpus=2-7 cpuset.cpus=2-7 cpuset.cpus=0-1 cpuset.mems=0" {
		t.Errorf("writes are %q, want the shared CPUs of others before the exclusive ones", got)
	}
}

func TestPolicies(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, all string) {
		for policy, want := range map[string]string{"numa": "4-7", "immovable": "4-5", "none": all, "exclusive": "4-5", "sometimes": "4-5"} {
			p := b.runPod(policy, "node1=2", 2)
			p.Annotations[topologyv1alpha1.AnnotationPodCPUPolicy] = policy
			b.advance()
			b.expectCPUs(policy, policy+"/a="+want)
			b.pods = nil
			b.stopContainer(policy, "a")
			b.stopContainer(policy, "sandbox")
			b.invalidateState()
			b.advance()
		}

		if !strings.Contains(strings.Join(b.events, "\n"), `"sometimes", which is not a policy: exclusive applies`) {
			t.Errorf("events are %v, want the unknown policy; log %v", b.events, b.log)
		}
	})
}

// TestLive checks that changed annotations of a running pod take effect.
func TestLive(t *testing.T) {
	b := newFixture(t, false)
	web := b.runPod("web", "node0=2", 2)
	b.runPod("other", "", 0)
	b.advance()
	b.expectCPUs("exclusive", "web/a=0-1", "other/a=2-7")

	for _, c := range []struct{ policy, zones, web, other string }{
		{"immovable", "node0=2", "0-1", "0-7"}, {"numa", "node0=2", "0-3", "0-7"}, {"exclusive", "node1=2", "4-5", "0-3,6-7"}, {"none", "node1=2", "0-7", "0-7"},
	} {
		web = web.DeepCopy()
		web.Annotations[topologyv1alpha1.AnnotationPodCPUPolicy] = c.policy
		web.Annotations[topologyv1alpha1.AnnotationPodTopologyResult] = topologyResult(c.zones)
		b.pods[0] = web
		b.invalidateState()
		b.advance()
		b.expectCPUs(c.policy, "web/a="+c.web, "other/a="+c.other)
	}
}

// TestResize checks that a container resized in place keeps its CPUs and gets more after the kubelet has applied the resize.
func TestResize(t *testing.T) {
	b := newFixture(t, false)
	web := b.runPod("web", "node0=2", 2)
	b.runPod("other", "", 0)
	b.advance()
	web = web.DeepCopy()
	b.pods[0] = web
	now := resources(2)
	web.Spec.Containers[0].Resources = resources(4)
	web.Status.ContainerStatuses[0].Resources = &now
	b.invalidateState()

	b.advance()
	b.expectCPUs("asked for", "web/a=0-1", "other/a=2-7")
	now = resources(4)
	b.invalidateState()
	b.advance()
	b.expectCPUs("applied", "web/a=0-3", "other/a=4-7")
	now = resources(6)
	b.invalidateState()
	b.advance()
	b.expectCPUs("too much", "web/a=0-3", "other/a=4-7")

	if !b.reported("container a keeps its CPUs") {
		t.Errorf("events are %v, want that the container keeps its CPUs", b.events)
	}

	now = resources(2)
	b.invalidateState()
	b.advance()
	b.expectCPUs("shrunk", "web/a=0-1", "other/a=2-7")
	now = corev1.ResourceRequirements{Requests: resources(0).Requests, Limits: resources(2).Limits}
	b.invalidateState()
	b.advance()
	b.expectCPUs("no whole CPUs any more", "web/a=0-7", "other/a=0-7")
}

// TestRestart checks that a restarted agent and a restarted container keep the assignment.
func TestRestart(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("first", "node0=2", 2)
	b.runPod("second", "node0=1", 1)
	b.advance()
	b.expectCPUs("two", "first/a=0-1", "second/a=2")
	b.pods = b.pods[1:]
	b.stopContainer("first", "a")
	b.stopContainer("first", "sandbox")
	b.invalidateState()

	b.advance()
	b.startAgent() // It undoes the changes of the previous agent.
	b.expectCPUs("started", "second/a=0-7")
	b.advance()
	b.expectCPUs("as before", "second/a=2")
	b.stopContainer("second", "a")
	b.advance()
	b.startContainer("second", "a")
	b.advance()
	b.expectCPUs("the container came back", "second/a=2")
}

// TestDrift checks that CPUs changed by others are corrected within the period.
func TestDrift(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, _ string) {
		b.runPod("web", "node0=2", 2)
		b.runPod("other", "", 0)
		b.advance()

		for _, pod := range []string{"web", "other"} {
			path, err := b.layout.SettingFile(containerPath(pod, "a"), "cpuset.cpus")
			if err != nil {
				t.Fatal(err)
			}

			if err := b.tree.Write(path, "0-7"); err != nil {
				t.Fatal(err)
			}
		}

		for range 5 {
			b.advance()
		}

		b.expectCPUs("put right", "web/a=0-1", "other/a=2-7")
		if !b.reported("corrected container CPUs that were changed by others") {
			t.Errorf("log %v, want a message about corrected CPUs", b.log)
		}
	})
}

// TestRefused checks that a container whose request is refused shares CPUs, that the reason is reported once, and that others keep
// theirs.
func TestRefused(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("big", "node0=4,node1=4", 8)
	b.runPod("web", "node0=2", 2)
	b.runPod("broken", "node0=2", 2).Annotations[topologyv1alpha1.AnnotationPodTopologyResult] = "[{"
	b.runPod("nowhere", "node9=2", 2)
	b.advance()
	b.expectCPUs("refused", "web/a=0-1", "big/a=2-7", "broken/a=2-7", "nowhere/a=2-7")

	for _, want := range []string{
		"big CPUsRefused: container a shares CPUs: 8 CPUs for big/a would leave none to share", "broken CPUsRefused: cannot parse its assigned zones",
		`nowhere CPUsRefused: container a shares CPUs: 2 CPUs of zone "node9"`,
	} {
		if !b.reported(want) {
			t.Errorf("events are %s\nwant %s", strings.Join(b.events, "\n"), want)
		}
	}

	reported := len(b.events)
	for range 10 {
		b.advance()
	}

	if len(b.events) != reported {
		t.Errorf("further steps reported %s, want nothing new", b.events[reported:])
	}
}

// TestReserved checks that reserved CPUs are never assigned, and that assigned CPUs survive a changed reservation.
func TestReserved(t *testing.T) {
	b := newFixture(t, false)
	b.setKubeletConfig("reservedSystemCPUs: 0-1\n")
	b.runPod("web", "node0=2", 2)
	spared := b.runPod("spared", "", 0)
	spared.Annotations[topologyv1alpha1.AnnotationPodExcludeReservedCPUs] = "true"
	b.advance()
	b.expectCPUs("reserved", "web/a=2-3", "spared/a=4-7", "spared/sandbox=4-7", "web/sandbox=0-1,4-7")
	b.setKubeletConfig("reservedSystemCPUs: 2-3\n")

	b.advance()
	b.expectCPUs("others reserved", "web/a=0-1", "spared/a=4-7", "web/sandbox=2-7")
	b.setKubeletConfig("reservedSystemCPUs: 0-3\n")
	b.advance()
	b.expectCPUs("all of the zone reserved", "web/a=0-1", "web/sandbox=2-7")
	b.setKubeletConfig("")
	b.advance()
	b.expectCPUs("none reserved", "web/a=0-1", "spared/a=2-7")
}

// TestStandsAside checks that nothing is assigned while the kubelet assigns CPUs.
func TestStandsAside(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, all string) {
		b.runPod("web", "node0=2", 2)
		b.advance()
		b.expectCPUs("ours", "web/a=0-1")

		if all == "" {
			all = "0-7"
		}

		b.setKubeletConfig("cpuManagerPolicy: static\n")
		b.advance()
		b.expectCPUs("the kubelet's", "web/a="+all)

		if s := b.Status(); s.Active || !strings.Contains(s.Reason, "the kubelet assigns CPUs itself") {
			t.Errorf("Status() = %+v, want inactive: the kubelet assigns CPUs", s)
		}

		b.setKubeletConfig("")
		b.advance()
		b.expectCPUs("ours again", "web/a=0-1")
	})
}

// TestMemoryIsTheKubelets checks that memory nodes are left alone while the kubelet's memory manager sets them; CPUs are still assigned.
func TestMemoryIsTheKubelets(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, _ string) {
		b.runPod("web", "node0=2", 2)
		before := b.mems("web", "a")
		b.advance()

		if got := b.mems("web", "a"); got != "0" {
			t.Errorf("memory nodes are %q, want 0", got)
		}

		b.setKubeletConfig("memoryManagerPolicy: Static\n")
		b.advance()
		b.expectCPUs("CPUs stay", "web/a=0-1")

		if got := b.mems("web", "a"); got != before && got != "0-1" {
			t.Errorf("memory nodes are %q, want all or %q as before", got, before)
		}
	})
}

// TestMemoryIsNotBoundByDefault checks that containers may allocate memory in all zones unless the setting is on.
func TestMemoryIsNotBoundByDefault(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, _ string) {
		b.memoryUnbound = true
		b.startAgent()
		b.runPod("web", "node0=2", 2)
		before := b.mems("web", "a")
		b.advance()
		b.expectCPUs("CPUs are bound", "web/a=0-1")

		if got := b.mems("web", "a"); got != before {
			t.Errorf("memory nodes are %q, want %q as before", got, before)
		}
	})
}

// TestMemoryOfOthers checks that a container is bound only while its limit fits into the zone beside the memory of unbound pods, and that
// its own memory does not count as theirs. The container has a limit of 1 GiB.
func TestMemoryOfOthers(t *testing.T) {
	const gi = 1 << 30
	forEachVersion(t, func(t *testing.T, b *fixture, _ string) {
		restored := func(what string) {
			t.Helper()

			for range 5 {
				b.advance()
			}

			if got := b.mems("web", "a"); got != "" && got != "0-1" {
				t.Errorf("%s: memory nodes are %q, want all", what, got)
			}
		}

		bound := func(what string) {
			t.Helper()

			for range 5 {
				b.advance()
			}

			if got := b.mems("web", "a"); got != "0" {
				t.Errorf("%s: memory nodes are %q, want 0", what, got)
			}
		}

		b.usedMemory = [2]units.Bytes{15 * gi / 2, 0}
		b.runPod("web", "node0=2", 2)
		restored("others use 7.5 of 8 GiB")
		b.usedMemory[0] = 6 * gi
		bound("others use 6 GiB")
		id := strings.TrimPrefix(containerPath("web", "a"), "kubepods/podweb/")
		use := observe.Container{ID: id}
		use.Memory.Value = observe.Memory{RSS: gi / 2, Shared: gi / 2}
		use.Memory.OK = true

		b.webContainers = []observe.Container{use}
		b.usedMemory[0] = 15 * gi / 2
		bound("others use 6.5 GiB, the container 1 GiB")
		b.webContainers = nil
		restored("others use 7.5 GiB")
		b.usedMemory[0] = 0
		bound("others use nothing")
		b.clock.Step(2 * maxUseAge)
		b.Reconcile()

		if got := b.mems("web", "a"); got != "" && got != "0-1" || !b.reported("was measured") {
			t.Errorf("stale use: memory nodes are %q, log %v; want all and the age of the measurement", got, b.log)
		}
	})
}

// TestUnknown checks that no CPUs are considered free before the pods are known.
// TestForgottenPod checks that a pod deleted from the API server keeps its CPUs while its containers run.
func TestForgottenPod(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	b.runPod("other", "", 0)
	b.advance()
	b.pods = b.pods[1:]
	b.invalidateState()

	b.advance()
	b.expectCPUs("forgotten", "web/a=0-1", "other/a=2-7")
	b.stopContainer("web", "a")
	b.stopContainer("web", "sandbox")
	b.advance()
	b.expectCPUs("gone", "other/a=0-7")
}

// TestKernelRefuses checks that a refused write is reported and retried without delaying other containers.
func TestKernelRefuses(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	b.runPod("other", "", 0)
	busy := true

	b.writeError = func(file, _ string) error {
		if busy && strings.Contains(file, containerPath("other", "a")) || strings.HasSuffix(file, "mems") {
			return &os.PathError{Op: "write", Path: file, Err: syscall.EBUSY}
		}

		return nil
	}

	b.advance()
	b.expectCPUs("busy", "web/a=0-1", "other/a=", "other/sandbox=2-7")

	if !b.reported(`"failed"=2 "containers"=4`) || b.mems("web", "a") != "" {
		t.Errorf("log %v, memory %q; want a failure of 2 of 4 containers and no bound memory", b.log, b.mems("web", "a"))
	}

	busy = false
	for range 5 {
		b.advance()
	}
	b.expectCPUs("not busy any more", "other/a=2-7")
}

// TestFullDisk checks that a plan that cannot be saved is not applied.
func TestFullDisk(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("first", "node0=2", 2)
	b.advance()

	block := filepath.Join(b.dir, StateFile+".tmp", "full")
	if err := os.MkdirAll(block, 0o700); err != nil {
		t.Fatal(err)
	}

	b.runPod("second", "node0=2", 2)
	b.advance()
	b.expectCPUs("full", "first/a=0-1", "second/a=2-7")
	b.startAgent()
	b.advance()
	b.expectCPUs("full, started anew", "first/a=0-1", "second/a=2-7")

	if !b.reported("saving the CPU assignments") {
		t.Errorf("log %v, want the failure of saving", b.log)
	}
	if err := os.RemoveAll(filepath.Dir(block)); err != nil {
		t.Fatal(err)
	}

	b.advance()
	b.expectCPUs("space again", "first/a=0-1", "second/a=2-3")
}

// TestDamagedState checks that a damaged file is moved aside and containers count as new.
func TestDamagedState(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	b.writeFile(StateFile, `{"version":1,"checksum":5,"content":[{"pod":"web"`)
	b.advance()
	b.expectCPUs("damaged", "web/a=0-1")

	if _, err := os.Stat(filepath.Join(b.dir, StateFile+".bad")); err != nil || !b.reported("is damaged") {
		t.Errorf("the damaged file: %v, log %v; want it moved aside", err, b.log)
	}
}

// TestNewerState checks that after a downgrade no CPUs are assigned and the state of the newer agent is kept, which may own CPUs that this
// agent cannot know.
func TestNewerState(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	const newer = `{"version":2,"checksum":5,"content":{"owners":[{"pod":"old","cpus":"0-3"}]}}`
	b.writeFile(StateFile, newer)
	b.advance()
	b.expectCPUs("untouched", "web/a=")

	if got := b.readFile(filepath.Join(b.dir, StateFile)); got != newer || !b.reported("written by a newer version") {
		t.Errorf("the file of a newer version is %s, log %v; want it unchanged", got, b.log)
	}
	if err := os.Remove(filepath.Join(b.dir, StateFile)); err != nil {
		t.Fatal(err)
	}

	b.advance()
	b.expectCPUs("without the file", "web/a=0-1")
}

// setUpPredecessor simulates a host on which gocrane's agent had assigned CPUs 2 and 3 to web/a.
func (b *fixture) setUpPredecessor(file string) {
	b.t.Helper()

	b.writeFile(predecessorStatePath, file)
	b.runPod("web", "node0=2", 2)
	b.runPod("other", "", 0)

	for name, cpus := range map[string]string{"web/a": "2-3", "web/sandbox": "0-1,4-7", "other/a": "0-1,4-7", "other/sandbox": "0-1,4-7"} {
		pod, container, _ := strings.Cut(name, "/")
		path, err := b.layout.SettingFile(containerPath(pod, container), cgroup.FileCPUs)
		if err == nil {
			err = b.tree.Write(path, cpus)
		}

		if err != nil {
			b.t.Fatal(err)
		}
	}

	b.startAgent()
}

const predecessorState = `{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"web":{"a":"2-3"},"gone":{"x":"6"}},"checksum":1357924680}`

// TestStateOfGocrane checks that assignments of gocrane's agent are adopted once and none of its settings remain.
func TestStateOfGocrane(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, _ string) {
		b.setUpPredecessor(predecessorState)
		b.advance()
		b.expectCPUs("taken over", "web/a=2-3", "web/sandbox=0-1,4-7", "other/a=0-1,4-7")

		if !b.reported("adopting the CPUs assigned by gocrane's agent") {
			t.Errorf("log %v, want the adoption of gocrane's CPUs", b.log)
		}

		b.startAgent()
		b.expectCPUs("undone for a moment", "other/a=0-7")

		// From here on there is an own state file.
		b.writeFile(predecessorStatePath, "no JSON")
		b.advance()
		b.expectCPUs("started anew", "web/a=2-3", "other/a=0-1,4-7")
		b.stopContainer("web", "a")
		b.stopContainer("web", "sandbox")

		b.pods = b.pods[1:]
		b.invalidateState()
		b.advance()
		b.expectCPUs("handed back", "other/a=0-7", "other/sandbox=0-7")
		b.startAgent()
		b.advance()
		b.expectCPUs("and started anew", "other/a=0-7")
	})
}

// TestPausedStateOfGocrane checks that an agent that starts while Crane is paused resets the CPUs of gocrane's agent after the pause.
func TestPausedStateOfGocrane(t *testing.T) {
	b := newFixture(t, false)
	b.setUpPredecessor(predecessorState)
	paused := true
	b.config.Journal.Stopped = func() bool { return paused }
	b.advance()
	b.expectCPUs("paused", "web/a=2-3", "other/a=0-1,4-7")

	if b.Status().Active {
		t.Errorf("while paused Status() = %+v, want inactive", b.Status())
	}

	paused = false
	b.advance()
	b.expectCPUs("taken over", "web/a=2-3", "other/a=0-1,4-7")
	b.startAgent()
	b.expectCPUs("undone", "web/a=0-7", "other/a=0-7")
}

// TestNothingOfGocrane checks that gocrane's file is never changed.
func TestNothingOfGocrane(t *testing.T) {
	b := newFixture(t, false)
	b.setUpPredecessor("no JSON")
	b.advance()
	b.expectCPUs("damaged", "web/a=0-1", "other/a=2-7")

	if got := b.readFile(filepath.Join(b.dir, predecessorStatePath)); got != "no JSON" || !b.reported("is damaged") {
		t.Errorf("gocrane's damaged file is %q, log %s; want it unchanged", got, b.log)
	}

	b = newFixture(t, false)
	b.dryRun = true
	b.setUpPredecessor(predecessorState)
	b.advance()
	b.expectCPUs("dry", "web/a=2-3", "other/a=0-1,4-7")

	if !b.reported("adopting the CPUs") || len(b.writes) > 0 || !b.reported("container a runs on CPUs 2-3") {
		t.Errorf("a dry run logged %s and wrote %s, want the adoption and no write", b.log, b.writes)
	}
}

func TestDryRun(t *testing.T) {
	b := newFixture(t, false)
	b.dryRun = true
	b.startAgent()
	b.runPod("web", "node0=2", 2)
	b.runPod("other", "", 0)

	for range 10 {
		b.advance()
	}

	b.expectCPUs("dry", "web/a=", "other/a=")
	if _, err := os.Stat(filepath.Join(b.dir, StateFile)); !os.IsNotExist(err) || len(b.writes) > 0 || len(b.events) > 0 {
		t.Errorf("a dry run has state file %v, writes %s, events %s; want none", err, b.writes, b.events)
	}
	if n := strings.Count(strings.Join(b.log, "\n"), "would have moved containers"); n != 1 || !b.reported("container a runs on CPUs 0-1 by policy exclusive") {
		t.Errorf("a dry run logged its moves %d times, want once: %s", n, strings.Join(b.log, "\n"))
	}
}

// TestEnds checks that Run restores all containers at its end and keeps the state file.
func TestEnds(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, all string) {
		b.runPod("web", "node0=2", 2)
		b.runPod("other", "", 0)
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan struct{}, 100)
		b.Manager.config.Beat = func(string) { began <- struct{}{} }
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		<-began
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
		if all == "" {
			all = "0-7"
		}

		b.expectCPUs("the end", "web/a="+all, "other/a="+all)
		if holdings, _, err := readState(filepath.Join(b.dir, StateFile)); err != nil || len(holdings) != 1 {
			t.Errorf("readState at the end = %v, %v, want one assignment", holdings, err)
		}
	})
}

// TestUnsupported checks that a host without cpusets for pods is reported.
func TestUnsupported(t *testing.T) {
	b := newFixture(t, false)
	if err := os.Remove(filepath.Join(b.dir, "sys/fs/cgroup/kubepods/cpuset.cpus")); err != nil {
		t.Fatal(err)
	}

	b.runPod("web", "node0=2", 2)
	b.startAgent()
	b.advance()

	if s := b.Status(); s.Active || !s.Unsupported || !strings.Contains(s.Reason, "cgroup v2 has no cpuset.cpus") {
		t.Errorf("Status() = %+v, want unsupported: no cpuset.cpus", s)
	}
}

// TestKilled checks that the next agent restores everything after a kill at any write.
func TestKilled(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, _ string) {
		b.runPod("web", "node0=2", 2)
		b.runPod("other", "", 0)

		for at := range 8 {
			n := 0
			b.writeError = func(string, string) error {
				n++

				if n > at {
					return errors.New("killed") // No write succeeds from here on, neither to the kernel nor to the disk.
				}

				return nil
			}

			b.advance()
			b.writeError = nil
			b.startAgent()

			if got := b.cpus("web", "a") + b.cpus("other", "a"); got != "" && got != "0-7" && got != "0-70-7" {
				t.Fatalf("killed after %d writes: CPUs are %q, want all", at, got)
			}
		}

		b.advance()
		b.expectCPUs("the rest", "web/a=0-1", "other/a=2-7")
	})
}

func TestMetrics(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	b.runPod("big", "node0=9", 9)
	b.advance()

	if cpus, ok := b.ExclusiveCPUs(); !ok || cpus.String() != "0-1" {
		t.Errorf("ExclusiveCPUs() = %s, %t, want 0-1, true", cpus, ok)
	}

	want := `
# HELP crane_agent_cpu_manager_containers Number of containers by state: assigned CPUs by a policy, or refused.
# TYPE crane_agent_cpu_manager_containers gauge
crane_agent_cpu_manager_containers{state="assigned"} 1
crane_agent_cpu_manager_containers{state="refused"} 1
# HELP crane_agent_cpu_manager_cpus Number of CPUs by set: exclusive to one container, or shared.
# TYPE crane_agent_cpu_manager_cpus gauge
crane_agent_cpu_manager_cpus{set="exclusive"} 2
crane_agent_cpu_manager_cpus{set="shared"} 6
# HELP crane_agent_cpu_manager_writes_total Writes of container CPUs by outcome: moved, mended after a change from outside, or failed.
# TYPE crane_agent_cpu_manager_writes_total counter
crane_agent_cpu_manager_writes_total{outcome="failed"} 0
crane_agent_cpu_manager_writes_total{outcome="mended"} 0
crane_agent_cpu_manager_writes_total{outcome="moved"} 4
`

	if err := testutil.CollectAndCompare(b.Manager, strings.NewReader(want), "crane_agent_cpu_manager_containers", "crane_agent_cpu_manager_cpus", "crane_agent_cpu_manager_writes_total"); err != nil {
		t.Error(err)
	}

	b.setKubeletConfig("cpuManagerPolicy: static\n")
	b.advance()

	if _, ok := b.ExclusiveCPUs(); ok {
		t.Error("ExclusiveCPUs() of an inactive manager = true, want false")
	}
	if n := testutil.CollectAndCount(b.Manager, "crane_agent_cpu_manager_cpus"); n != 0 {
		t.Errorf("an inactive manager has %d series of CPUs, want none", n)
	}
}

// BenchmarkStep measures reconciliations of 110 pods, without changes and with all files compared.
func BenchmarkStep(b *testing.B) {
	bed := newFixture(b, false)
	bed.runPod("web", "node0=2", 2)

	for i := range 109 {
		bed.runPod(fmt.Sprintf("pod-%d", i), "", 0)
	}

	bed.advance()
	b.Run("quiet", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bed.Reconcile()
		}
	})

	b.Run("compare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bed.clock.Step(DefaultPeriod)
			bed.Reconcile()
		}
	})
}

// TestCPUsStayForTheNextAgent checks that containers keep their CPUs at the end if another agent follows, and that it finds them assigned.
func TestCPUsStayForTheNextAgent(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, all string) {
		b.runPod("web", "node0=2", 2)
		b.advance()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		b.config.Keep = func() bool { return true }
		if err := b.Run(ctx); err != nil {
			t.Fatal(err)
		}

		b.expectCPUs("kept", "web/a=0-1", "web/sandbox=2-7")
		b.config.Keep = nil
		if err := b.Run(ctx); err != nil {
			t.Fatal(err)
		}

		if got := b.cpus("web", "sandbox"); got != all && got != "0-7" {
			t.Errorf("at the end the sandbox has CPUs %q, want %q", got, all)
		}
	})
}
