// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/test/e2e/node"
)

// changeable returns the cgroup files of either version that an agent may write.
func changeable() []string {
	return []string{
		"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.shares", "cpuset.cpus", "cpuset.mems", "memory.limit_in_bytes",
		"memory.soft_limit_in_bytes", "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle", "memory.high", "memory.low", "memory.max",
	}
}

// settings reads these files of every pod and container of a node in namespaces by path. The cgroups of QoS classes belong to the kubelet.
func (s fixture) settings(t testing.TB) map[string]string {
	t.Helper()
	base := s.Path("/sys/fs/cgroup")
	found := map[string]string{}
	err := filepath.WalkDir(base, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.Contains(path, "/pod") || !slices.Contains(changeable(), entry.Name()) {
			return nil //nolint:nilerr // Pods come and go.
		}
		if content, err := os.ReadFile(path); err == nil {
			found[strings.TrimPrefix(path, base)] = strings.TrimSpace(string(content))
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("read settings below %s: %d found, %v", base, len(found), err)
	}
	return found
}

// settingsInside reads them on a node in a virtual machine from a Watcher pod, by their path below kubepods.
func (s fixture) settingsInside(t testing.TB, watcher *corev1.Pod) map[string]string {
	t.Helper()
	all := s.walk(t, watcher, node.HostRoot+"/sys/fs/cgroup/kubepods", changeable()...)
	maps.DeleteFunc(all, func(path, _ string) bool { return !strings.Contains(path, "/pod") })
	if len(all) == 0 {
		t.Fatal("a node without settings of pods")
	}
	return all
}

// changes returns the changed settings, one line each, except those that appeared or disappeared.
func changes(before, now map[string]string) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if v, ok := now[path]; ok && v != before[path] {
			out = append(out, fmt.Sprintf("%s: %s, was %s", path, v, before[path]))
		}
	}
	return out
}

// awaitAsBefore waits until every setting is as before.
func (s fixture) awaitAsBefore(t testing.TB, before map[string]string) {
	t.Helper()
	s.Eventually(t, "every setting is as before", func() error {
		if c := changes(before, s.settings(t)); len(c) > 0 {
			return fmt.Errorf("%d differ: %s", len(c), strings.Join(c, "; "))
		}
		return nil
	})
}

// file returns the path of a file of a container's cgroup on a node in namespaces.
func (s fixture) file(controller, name string, pod *corev1.Pod) string {
	if s.Cgroup() != 1 {
		controller = ""
	}
	return filepath.Join(s.Path("/sys/fs/cgroup"), controller, node.Group(pod), name)
}

// awaitThrottled waits until the pod's container has a limit and the kernel has enforced it.
func (s fixture) awaitThrottled(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	s.awaitHeldDown(t, s.Cgroups(t), pod)
}

// awaitHeldDown is awaitThrottled for the given cgroups.
func (s fixture) awaitHeldDown(t testing.TB, cgroups *node.Cgroups, pod *corev1.Pod) {
	t.Helper()
	first := int64(-1)
	s.Eventually(t, pod.Name+" is throttled", func() error {
		limits, err := cgroups.ContainerLimits(t, pod)
		if err != nil {
			return err
		}
		if math.IsInf(limits.Cores, 1) {
			return errors.New("it has no limit")
		}
		n, err := cgroups.Throttled(t, pod)
		if err != nil {
			return err
		}
		if first < 0 {
			first = n
		}
		if n <= first {
			return fmt.Errorf("limit %g, used up in %d periods", limits.Cores, n)
		}
		return nil
	})
}
