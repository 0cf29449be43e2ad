// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// replace ends a container and starts its successor, as a kubelet does at once: the new group gets the quota of the spec.
func (n fixture) replace(t *testing.T, old, next, quota string) {
	t.Helper()

	if err := n.tree.Detach(old); err != nil {
		t.Fatal(err)
	}

	if err := n.tree.Remove(old); err != nil {
		t.Fatal(err)
	}

	if err := n.tree.Make(next); err != nil {
		t.Fatal(err)
	}

	n.put(t, next, cpuLimitFiles(n.layout.Version).quota, quota)
}

// quotaOf returns the quota of a group without the period.
func (n fixture) quotaOf(t *testing.T, group string) string {
	t.Helper()

	quota, _, _ := strings.Cut(n.get(t, group, cpuLimitFiles(n.layout.Version).quota), " ")
	return quota
}

// TestThrottleSuccessor checks that a throttled container that ends leaves nothing at its pod: its successor starts at once with the quota
// of its spec, and a throttle of the successor counts alone.
func TestThrottleSuccessor(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		pod := filepath.Dir(n.group)
		weightFile := cgroup.FileWeight
		if v1 {
			weightFile = cgroup.FileSharesV1
		}

		n.put(t, pod, cpuLimitFiles(n.layout.Version).quota, "400000")
		n.put(t, pod, weightFile, "80")
		n.put(t, n.group, cpuLimitFiles(n.layout.Version).quota, "400000")

		th := n.throttler(t, n.tree)
		throttle := func(id, group string) {
			t.Helper()

			p := plan(4000, 500, 4000)
			p.ContainerID = id
			p.Weight = 0.125
			if err := th.Throttle(p, group); err != nil {
				t.Fatalf("v1 %t: Throttle of container %s = %v, want nil", v1, id, err)
			}
		}

		// Restarts while a rule fires, each without a call of the throttler in between.
		throttle("c", n.group)
		group := n.group
		for _, id := range []string{"d", "e", "f"} {
			next := filepath.Join(pod, id)
			n.replace(t, group, next, "400000")
			group = next

			if got := n.quotaOf(t, pod); got != "400000" {
				t.Errorf("v1 %t: pod quota with successor %s = %s, want 400000", v1, id, got)
			}

			throttle(id, group)
			if got := n.quotaOf(t, pod); got != "400000" {
				t.Errorf("v1 %t: pod quota with successor %s throttled = %s, want 400000", v1, id, got)
			}
		}

		// A record that outlives its container throttles nobody.
		n.replace(t, group, filepath.Join(pod, "g"), "400000")
		restored := th.RestoreUntracked(func(string) bool { return true })
		if len(restored) != 1 || restored[0].ContainerID != "f" || restored[0].Err != nil {
			t.Errorf("v1 %t: RestoreUntracked = %+v, want the ended container f without an error", v1, restored)
		}
		if got := n.get(t, pod, weightFile); got != "80" || len(th.journal.Entries()) > 0 {
			t.Errorf("v1 %t: the pod's weight is %s with entries %+v, want its original 80 and none", v1, got, th.journal.Entries())
		}
	}
}

// TestThrottleSuccessorWeight checks that the share of an ended container does not keep its pod's weight too high or too low while another
// one is throttled.
func TestThrottleSuccessorWeight(t *testing.T) {
	for _, test := range []struct {
		name           string
		ended, running float64 // shares of the weight; 0 for all of it
		want           string
	}{
		{name: "the ended one kept a larger share", ended: 0.75, running: 0.25, want: "20"},
		{name: "the ended one kept all of it", ended: 0, running: 0.25, want: "20"},
		{name: "the ended one kept a smaller share", ended: 0.1, running: 0.25, want: "20"},
	} {
		n := newFixture(t, false)
		pod := filepath.Dir(n.group)
		other := filepath.Join(pod, "d")
		if err := n.tree.Make(other); err != nil {
			t.Fatal(err)
		}

		n.put(t, pod, cgroup.FileWeight, "80")
		th := n.throttler(t, n.tree)
		for id, share := range map[string]float64{"c": test.ended, "d": test.running} {
			p := plan(qos.Unlimited, 300, qos.Unlimited)
			p.ContainerID = id
			p.Weight = units.Ratio(share)
			if err := th.Throttle(p, filepath.Join(pod, id)); err != nil {
				t.Fatal(err)
			}
		}

		n.replace(t, n.group, filepath.Join(pod, "e"), "max")
		th.RestoreUntracked(func(string) bool { return true })
		if got := n.get(t, pod, cgroup.FileWeight); got != test.want {
			t.Errorf("%s: the pod's weight is %s, want %s", test.name, got, test.want)
		}
	}
}

// TestThrottleRestoresPodQuota checks that a pod's quota that an earlier version lowered is restored with the next change of the pod.
func TestThrottleRestoresPodQuota(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		pod := filepath.Dir(n.group)
		quota := cpuLimitFiles(n.layout.Version).quota
		lowered := "50000 100000"
		if v1 {
			lowered = "50000"
		}

		n.put(t, pod, quota, "400000")
		n.put(t, n.group, quota, "50000")
		journal := n.open(t, n.tree)
		if err := journal.Change(Unit{Key: cpuKey("podx"), Subject: "batch/hog", Changes: []Change{{Group: pod, File: quota, Value: lowered}}}); err != nil {
			t.Fatal(err)
		}

		th := NewThrottler(n.layout, journal)
		if err := th.Throttle(plan(500, 300, 500), n.group); err != nil || n.quotaOf(t, pod) != "400000" || n.quotaOf(t, n.group) != "30000" {
			t.Errorf("v1 %t: Throttle = %v with pod quota %s and quota %s, want nil, 400000 and 30000", v1, err, n.quotaOf(t, pod), n.quotaOf(t, n.group))
		}
	}
}
