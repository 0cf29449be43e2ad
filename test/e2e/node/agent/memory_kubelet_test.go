// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/test/e2e/node"
)

// TestMemoryOfKubelet checks that with a kubelet that sets memory.high the agent only lowers that value and restores it, and that a value
// the kubelet changes meanwhile becomes the new original, also after a kill.
func TestMemoryOfKubelet(t *testing.T) {
	f := newMachineFixture(t, node.Options{Machine: true, Cgroup: 2, MemoryThrottling: 0.5})
	const mib = 96

	// The kubelet's value is the request plus half of the rest up to the limit.
	ask := func(limit string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: node.Resources("", "32Mi"), Limits: node.Resources("", limit)}
	}
	const first, second = 144 * mebi, 176 * mebi
	reader := f.Pod("reader", "memory-hog", []string{"-mib", strconv.Itoa(mib), "-file", "/tmp/cache"}, ask("256Mi").Requests, ask("256Mi").Limits)
	reader.Labels = batch()
	reader = f.Run(t, reader)
	c := f.Cgroups(t)
	look := f.Run(t, f.HostPod("look"))

	read := func(name string) (string, error) {
		return c.Read(t, containerDir(c, reader)+"/"+name)
	}
	high := func(what string, ok func(int64) bool) {
		t.Helper()

		f.Eventually(t, what, func() error {
			return compare(read, "memory.high", func(n int64) bool {
				if n != first && n > mib*mebi && n != second {
					t.Errorf("%s: memory.high is %d, want the kubelet's value or one below it", what, n)
				}

				return ok(n)
			})
		})
	}

	is := func(want int64) func(int64) bool { return func(n int64) bool { return n == want } }
	held := func(n int64) bool { return n < mib*mebi }
	f.Eventually(t, "the files are in memory", func() error {
		return compare(read, "memory.current", func(n int64) bool { return n > mib*mebi })
	})

	high("the kubelet's value is there", is(first))
	d := f.deploy(t, "--enforce=memory-throttle", "--collect-interval=2s")
	remove := f.put(t, memoryRules)
	high("the pod is held down", held)
	remove()
	high("the kubelet's value is back", is(first))

	f.apply(t, memoryRules)
	high("the pod is held down again", held)
	f.resize(t, reader, ask("320Mi"))

	f.Eventually(t, "the agent takes from the kubelet's new value", func() error {
		original, err := f.originalHigh(t, look, reader)
		if err == nil && original != second {
			err = fmt.Errorf("it would put back %d, want %d", original, second)
		}

		return err
	})

	high("the pod is held down once more", held)
	d.kill(t, c)
	f.dropRule(t, "full")
	f.awaitEvent(t, "ChangesUndone")
	high("the kubelet's new value is back", is(second))

	now := f.Await(t, reader, "is there", func(*corev1.Pod) bool { return true })
	if now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod has the status %+v, want it running without a restart", now.Status)
	}
}

// originalHigh returns the original memory.high of a pod in the agent's journal.
func (f fixture) originalHigh(t testing.TB, watcher, pod *corev1.Pod) (int64, error) {
	t.Helper()

	text, err := f.Exec(t, watcher, "/nodekit", "cgroups", "read", node.HostRoot+"/var/lib/crane-agent/memory.json")
	if err != nil {
		return 0, err
	}

	var journal struct {
		Entries []struct {
			Files []struct{ Group, File, Original string }
		}
	}

	if err := json.Unmarshal([]byte(text), &journal); err != nil {
		return 0, err
	}

	for _, e := range journal.Entries {
		for _, file := range e.Files {
			if file.Group == node.Group(pod) && file.File == "memory.high" {
				return strconv.ParseInt(file.Original, 10, 64)
			}
		}
	}

	return 0, fmt.Errorf("the journal has nothing of the pod: %s", text)
}
