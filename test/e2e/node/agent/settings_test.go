// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/test/e2e/node"
)

// settingsInside reads them on a node in a virtual machine from a Watcher pod, by their path below kubepods.
func (f fixture) settingsInside(t testing.TB, watcher *corev1.Pod) map[string]string {
	t.Helper()

	all := f.walk(t, watcher, node.HostRoot+"/sys/fs/cgroup/kubepods", node.SettingFiles()...)
	maps.DeleteFunc(all, func(path, _ string) bool { return !strings.Contains(path, "/pod") })

	if len(all) == 0 {
		t.Fatal("the node has no settings of pods, want some")
	}

	return all
}

// awaitAsBefore waits until every setting is as before.
func (f fixture) awaitAsBefore(t testing.TB, before map[string]string) {
	t.Helper()

	f.Eventually(t, "every setting is as before", func() error {
		if c := node.ChangedSettings(before, f.Settings(t)); len(c) > 0 {
			return fmt.Errorf("%d differ: %s", len(c), strings.Join(c, "; "))
		}

		return nil
	})
}

// file returns the path of a file of a container's cgroup on a node in namespaces.
func (f fixture) file(controller, name string, pod *corev1.Pod) string {
	if f.Cgroup() != 1 {
		controller = ""
	}

	return filepath.Join(f.Path("/sys/fs/cgroup"), controller, node.Group(pod), name)
}

// containerDir returns the cgroup directory of a pod's container.
func containerDir(c *node.Cgroups, pod *corev1.Pod) string {
	return c.Dir("") + strings.TrimPrefix(node.Group(pod), "kubepods")
}

// awaitThrottled waits until the pod's container has a limit and the kernel has enforced it.
func (f fixture) awaitThrottled(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	f.awaitHeldDown(t, f.Cgroups(t), pod)
}

// awaitHeldDown is awaitThrottled for the given cgroups.
func (f fixture) awaitHeldDown(t testing.TB, cgroups *node.Cgroups, pod *corev1.Pod) {
	t.Helper()

	first := int64(-1)
	f.Eventually(t, pod.Name+" is throttled", func() error {
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
