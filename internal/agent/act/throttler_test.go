// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// get reads a file of a cgroup.
func (n fixture) get(t *testing.T, group, file string) string {
	t.Helper()

	path, err := n.layout.SettingFile(group, file)
	if err != nil {
		t.Fatal(err)
	}

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

func (n fixture) put(t *testing.T, group, file, value string) {
	t.Helper()

	path, err := n.layout.SettingFile(group, file)
	if err != nil {
		t.Fatal(err)
	}

	if err := n.tree.Write(path, value); err != nil {
		t.Fatal(err)
	}
}

// TestThrottlePod checks that a pod loses and regains weight with its containers and keeps its quota.
func TestThrottlePod(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		quota := "cpu.max"

		weight := "cpu.weight"
		period := " 100000"
		share := "80"
		if v1 {
			quota = "cpu.cfs_quota_us"
			weight = "cpu.shares"
			period = ""
			share = "80"
		}

		pod := filepath.Dir(n.group)
		other := filepath.Join(pod, "d")
		if err := n.tree.Make(other); err != nil {
			t.Fatal(err)
		}

		n.put(t, pod, quota, "100000")
		n.put(t, pod, weight, share)
		n.put(t, n.group, quota, "60000")
		n.put(t, other, quota, "40000")
		th := n.throttler(t, n.tree)

		step := func(id string, from, to, original qos.Quota, keep units.Ratio, want string) {
			t.Helper()

			group := n.group
			if id == "d" {
				group = other
			}

			p := plan(from, to, original)
			p.ContainerID = id
			p.Weight = keep
			if err := th.Throttle(p, group); err != nil {
				t.Fatalf("v1 %t: Throttle = %v, want nil", v1, err)
			}

			fields := []string{n.get(t, n.group, quota), n.get(t, other, quota), n.get(t, pod, quota), n.get(t, pod, weight)}
			if got := strings.ReplaceAll(strings.Join(fields, " "), period+" ", " "); strings.TrimSuffix(got, period) != want {
				t.Errorf("v1 %t: %s, want %s", v1, got, want)
			}
		}

		step("c", 600, 300, 600, 0.5, "30000 40000 100000 40")
		step("d", 400, 100, 400, 0.25, "30000 10000 100000 40") // the weight is the larger share
		step("c", 300, 100, 600, 0.1, "10000 10000 100000 20")
		step("c", 100, 400, 600, 0.7, "40000 10000 100000 56")
		step("c", 400, 600, 600, 0, "60000 10000 100000 20")
		step("d", 100, 400, 400, 0, "60000 40000 100000 80")

		if left := th.journal.Entries(); len(left) > 0 {
			t.Errorf("after the last step the journal has %+v, want no entries", left)
		}

		// One of two containers ends; the share of the other stays.
		step("c", 600, 300, 600, 0.5, "30000 40000 100000 40")
		step("d", 400, 100, 400, 0.5, "30000 10000 100000 40")

		if err := n.tree.Remove(other); err != nil {
			t.Fatal(err)
		}

		p := plan(100, 50, 400)
		p.ContainerID = "d"
		if err := th.Throttle(p, other); err != nil || strings.TrimSuffix(n.get(t, pod, weight), period) != "40" {
			t.Errorf("v1 %t: Throttle of a removed container = %v with weight %s, want nil and 40", v1, err, n.get(t, pod, weight))
		}
		if err := undoThrottles(th); err != nil || strings.TrimSuffix(n.get(t, pod, quota), period) != "100000" || n.get(t, pod, weight) != share {
			t.Errorf("v1 %t: undoThrottles = %v with pod quota %s and weight %s, want nil, 100000 and %s", v1, err, n.get(t, pod, quota), n.get(t, pod, weight), share)
		}
	}
}

// TestThrottleLeastWeight checks that the least weight and the weight of an idle cgroup stay unchanged.
func TestThrottleLeastWeight(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		weight := cgroup.FileWeight
		least := "1"
		if v1 {
			weight = cgroup.FileSharesV1
			least = "2"
		}

		pod := filepath.Dir(n.group)
		n.put(t, pod, weight, least)
		th := n.throttler(t, n.tree)

		p := plan(qos.Unlimited, 300, qos.Unlimited)
		p.Weight = 0.1
		if err := th.Throttle(p, n.group); err != nil || n.get(t, pod, weight) != least {
			t.Errorf("Throttle = %v with weight %s, want nil and the least weight %s", err, n.get(t, pod, weight), least)
		}
		if err := undoThrottles(th); err != nil {
			t.Error(err)
		}

		n.put(t, pod, cgroup.FileIdle, "1")
		if err := th.Throttle(p, n.group); err != nil || n.limit(t) != "30ms of 100ms burst 0s" {
			t.Errorf("Throttle in an idle group = %v with limit %s, want nil and 30ms", err, n.limit(t))
		}
		if err := undoThrottles(th); err != nil || n.get(t, pod, cgroup.FileIdle) != "1" || n.limit(t) != "none burst 0s" {
			t.Errorf("undoThrottles = %v with limit %s, want nil, no limit and an idle group", err, n.limit(t))
		}
	}
}

// TestRestoreUntracked checks that a pod regains its limits when another process changes the limit of a throttled container or the
// container ends, and keeps the reductions of its other containers.
func TestRestoreUntracked(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		quota := "cpu.max"
		weight := "cpu.weight"
		period := " 100000"
		if v1 {
			quota = "cpu.cfs_quota_us"
			weight = "cpu.shares"
			period = ""
		}

		pod := filepath.Dir(n.group)
		other := filepath.Join(pod, "d")
		if err := n.tree.Make(other); err != nil {
			t.Fatal(err)
		}

		n.put(t, pod, quota, "100000")
		n.put(t, pod, weight, "80")
		n.put(t, n.group, quota, "60000")
		n.put(t, other, quota, "40000")

		th := n.throttler(t, n.tree)
		for id, group := range map[string]string{"c": n.group, "d": other} {
			p := plan(400, 200, 400)
			p.ContainerID = id
			p.Weight = 0.5
			if id == "c" {
				p.From = 600
				p.To = 300
				p.Original = 600
			}

			if err := th.Throttle(p, group); err != nil {
				t.Fatal(err)
			}
		}

		has := func(what string, kept []RestoreResult, pods int, want string) {
			t.Helper()

			got := strings.TrimSuffix(n.get(t, pod, quota), period) + " " + n.get(t, pod, weight)
			if len(kept) != pods || got != want {
				t.Errorf("v1 %t: %s: %+v, the pod has %s, want %s", v1, what, kept, got, want)
			}

			for _, k := range kept {
				if k.Err != nil || k.Pod.Name != "hog" {
					t.Errorf("v1 %t: %s: RestoreUntracked has %+v, want pod hog without an error", v1, what, k)
				}
			}
		}

		all := func(string) bool { return true }
		has("both are throttled", th.RestoreUntracked(all), 0, "100000 40")
		n.put(t, n.group, quota, "45000") // as a kubelet does
		has("one was changed", th.RestoreUntracked(func(id string) bool { return id == "d" }), 1, "100000 40")

		if err := n.tree.Remove(other); err != nil {
			t.Fatal(err)
		}

		has("the other is gone", th.RestoreUntracked(func(string) bool { return false }), 1, "100000 80")
		if got := strings.TrimSuffix(n.get(t, n.group, quota), period); got != "45000" || len(th.journal.Entries()) > 0 {
			t.Errorf("v1 %t: the quota is %s with entries %+v, want the 45000 of another process and none", v1, got, th.journal.Entries())
		}

		has("nothing is left", th.RestoreUntracked(func(string) bool { return false }), 0, "100000 80")
	}
}

// TestThrottleNotAboveTheKubelets checks that a restore does not exceed a limit the kubelet lowered meanwhile.
func TestThrottleNotAboveTheKubelets(t *testing.T) {
	n := newFixture(t, false)
	n.set(t, "200000", "0")

	th := n.throttler(t, n.tree)
	if err := th.Throttle(plan(2000, 1200, 2000), n.group); err != nil {
		t.Fatal(err)
	}

	n.set(t, "100000", "0")
	if err := th.Throttle(plan(1200, 1600, 2000), n.group); err != nil || n.limit(t) != "100ms of 100ms burst 0s" {
		t.Errorf("Throttle above the kubelet's limit = %v with limit %s, want nil and its 100ms", err, n.limit(t))
	}
}
