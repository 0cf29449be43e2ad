// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// works sets the disk demands of the pods in MiB/s.
func (n *interferenceFixture) works(mebi ...float64) {
	n.t.Helper()

	for i, m := range mebi {
		id := containerID(string(rune('1' + i)))
		if err := n.host.SetDemand(strings.Repeat(string(rune('1'+i)), 8)+"-0000-0000-0000-000000000000", id, kernel.Load{CPU: 0.1, Read: m * (1 << 20)}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestDiskInterference checks the path from kernel files to the victim for a pod that waits for disks, without CPU throttling.
func TestDiskInterference(t *testing.T) {
	n := neighborsOn(t, kernel.Spec{Disk: 100 << 20}, strings.NewReplacer("pod_interference_cpu_ratio", "pod_interference_io_ratio", "throttle:", "eviction: {}, throttle:").Replace(interferenceRules))
	n.works(20, 50, 1)

	for range 27 {
		if plan := n.tick(5); len(plan.Throttles)+len(plan.Evictions) > 0 {
			t.Fatalf("the plan of a calm node is %+v, want no action", plan)
		}
	}

	n.works(20, 50, 300)
	var plan qos.Plan
	for range 8 {
		if plan = n.tick(1); len(plan.Evictions) > 0 {
			break
		}
	}

	if len(plan.Evictions) != 1 || plan.Evictions[0].Pod.Name != "hog" || len(plan.Throttles) > 0 || !strings.Contains(plan.Evictions[0].Reason, "for disks, usually") {
		t.Fatalf("the plan is %+v, want only the eviction of hog with its usual wait", plan)
	}

	if n.limited("hog") || n.limited("steady") {
		t.Error("CPU is limited for a rule on disks, want no limit")
	}
}

// TestDiskRule checks the path from kernel files to the victim for a rule on a disk of the node: the largest reader, once it is known,
// without CPU throttling.
func TestDiskRule(t *testing.T) {
	n := neighborsOn(t, kernel.Spec{Disk: 200 << 20}, strings.NewReplacer("pod_interference_cpu_ratio, value: 100m", "disk_read_kibps, value: 60Ki", "throttle:", "eviction: {}, throttle:").Replace(interferenceRules))
	for i, load := range []kernel.Load{{CPU: 0.1}, {CPU: 2, Read: 5 << 20}, {CPU: 0.1, Read: 80 << 20}} {
		id := containerID(string(rune('1' + i)))
		if err := n.host.SetDemand(strings.Repeat(string(rune('1'+i)), 8)+"-0000-0000-0000-000000000000", id, load); err != nil {
			t.Fatal(err)
		}
	}

	var plan qos.Plan
	for i := range 12 {
		if plan = n.tick(1); len(plan.Evictions) > 0 {
			break
		}

		if f := plan.Rules[0]; i > 2 && (f.Phase != qos.Firing || !strings.Contains(f.Reason, "no pod to evict by bytes read from disks: 0 are never evicted, 2 are unmeasured")) {
			t.Errorf("measurement %d: the finding is %+v, want it firing with two unmeasured pods", i, f)
		}
	}

	if len(plan.Evictions) != 1 || plan.Evictions[0].Pod.Name != "hog" || plan.Evictions[0].Criterion != qos.ByDiskReadBytes || !strings.HasPrefix(plan.Evictions[0].Reason, "reads 80.0 MiB/s from disks; ") {
		t.Fatalf("the plan is %+v, want the eviction of hog by its bytes read", plan)
	}

	if len(plan.Throttles) > 0 || n.limited("hog") || n.limited("steady") {
		t.Error("CPU is limited for a rule on disks, want no limit")
	}
}

// TestBaselinesOutlast checks that a restarted agent acts at once during interference, and one after a reboot does not.
func TestBaselinesOutlast(t *testing.T) {
	n := newInterferenceFixture(t, false)
	boot := filepath.Join(n.dir, "proc/sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(boot), 0o755); err != nil {
		t.Fatal(err)
	}

	start := func(id string) {
		t.Helper()

		if err := os.WriteFile(boot, []byte(id+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		n.start()
		n.loop.loadBaselines(n.parts.newBaselineStore(logr.Discard()))
	}

	stop := func() {
		t.Helper()

		n.loop.saveBaselines(true)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if err := n.loop.baselines.Run(ctx); err != nil {
			t.Fatal(err)
		}

		if err := n.parts.changes.UndoAll(); err != nil {
			t.Fatal(err)
		}

		n.loop.observer.Close()
	}

	start("one")
	n.want(1, 1, 0.3)

	for range 27 {
		n.tick(5)
	}

	n.want(1, 1, 6)
	n.tick(1)
	stop()

	// --once uses the baselines too.
	if got := n.parts.restoredState(logr.Discard(), n.clock.Now()).Baselines(); len(got) != 3 || len(got[0].Waits[units.CPU]) < 24 {
		t.Errorf("restoredState has %+v, want the baselines of 3 pods", got)
	}
	if got := n.parts.restoredState(logr.Discard(), n.clock.Now().Add(time.Hour)).Baselines(); len(got) != 0 {
		t.Errorf("restoredState an hour later has %+v, want none", got)
	}

	start("one")
	// The first snapshot has no rates; the second is the first of two required ones.
	for range 4 {
		n.tick(1)
	}

	if !n.limited("hog") || n.limited("steady") {
		t.Errorf("after a restart the findings are %+v, want hog limited and steady not", n.tick(1).Rules)
	}

	stop()
	if n.limited("hog") {
		t.Fatal("hog is limited after the end, want no limit")
	}

	start("two")
	for range 10 {
		if plan := n.tick(1); plan.Rules[0].Phase != qos.Unknown {
			t.Fatalf("after a reboot the findings are %+v, want the baseline unknown", plan.Rules)
		}
	}

	stop()
}

// TestDryRunBeside checks that a dry run beside an agent reads its baselines and changes none of its files.
func TestDryRunBeside(t *testing.T) {
	n := newInterferenceFixture(t, false)
	boot := filepath.Join(n.dir, "proc/sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(boot), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(boot, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	write := func(o *Options, uid string) {
		t.Helper()

		k := o.newBaselineStore(logr.Discard())
		k.Save([]qos.Baseline{{UID: uid, Uses: map[units.Resource][]float32{units.CPU: {500}}}}, n.clock.Now())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if err := k.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}

	knows := func(o *Options) string {
		t.Helper()

		list := o.restoredState(logr.Discard(), n.clock.Now()).Baselines()
		if len(list) != 1 {
			t.Fatalf("restoredState has %+v, want one baseline", list)
		}

		return list[0].UID
	}

	dry := *n.parts.Options
	dry.DryRun = true
	write(n.parts.Options, "learned by the one that acts")

	if got := knows(&dry); got != "learned by the one that acts" {
		t.Errorf("the dry run restores %q, want the agent's baseline", got)
	}

	n.want(1, 1, 8)
	n.tick(1)
	before := files(t, dry.StateDir)
	n.clock.Step(time.Minute)
	write(&dry, "learned by the dry run")

	after := files(t, dry.StateDir)
	if len(after) != len(before)+1 || after[dryRunBaselinesFile] == "" {
		t.Errorf("the dry run wrote %d files, want one of its own", len(after)-len(before))
	}

	for name, content := range before {
		if after[name] != content {
			t.Errorf("the dry run changed %s, want it unchanged", name)
		}
	}

	if got := knows(n.parts.Options); got != "learned by the one that acts" {
		t.Errorf("the agent restores %q, want its own baseline", got)
	}
	if got := knows(&dry); got != "learned by the dry run" {
		t.Errorf("the dry run restores %q, want its own baseline", got)
	}
}

// files reads the files of a directory by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()

	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]string{}
	for _, e := range list {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}

		out[e.Name()] = string(content)
	}

	return out
}
