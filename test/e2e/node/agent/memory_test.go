// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	_ "embed"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/e2e/node"
)

// memoryRules throttle memory of batch pods at any use of the node.
//
//go:embed testdata/memory-rules.yaml
var memoryRules string

// TestMemory checks on cgroup v2 that a pod with unused page cache is reclaimed and limited without being killed, and is restored by the
// next agent after a kill and after the rule was deleted.
func TestMemory(t *testing.T) {
	f := newMachineFixture(t, node.Options{Machine: true, Cgroup: 2})
	const mib = 96
	reader := f.batchPod(t, "reader", "memory-hog", "-mib", strconv.Itoa(mib), "-file", "/tmp/cache")
	c := f.Cgroups(t)
	read := func(name string) (string, error) {
		return c.Read(t, containerDir(c, reader)+"/"+name)
	}

	f.Eventually(t, "the files are in memory", func() error {
		return compare(read, "memory.current", func(n int64) bool { return n > mib<<20 })
	})
	f.apply(t, memoryRules)
	d := f.deploy(t, "--enforce=memory-throttle", "--collect-interval=2s")
	f.Eventually(t, "the pod has a limit", func() error {
		return compare(read, "memory.high", func(n int64) bool { return n < mib<<20 })
	})

	f.Eventually(t, "the files are dropped", func() error {
		return compare(read, "memory.current", func(n int64) bool { return n < mib/2<<20 })
	})
	d.kill(t, c)
	f.awaitEvent(t, "ChangesUndone")
	f.Await(t, d.pod, "is another process", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p) })
	f.Eventually(t, "the pod has a limit again", func() error {
		return compare(read, "memory.high", func(n int64) bool { return n < mib<<20 })
	})

	f.dropRule(t, "full")
	f.Eventually(t, "the pod has no limit", func() error {
		text, err := read("memory.high")
		if err == nil && text != "max" {
			err = fmt.Errorf("memory.high is %s", text)
		}

		return err
	})

	now, err := f.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), reader.Name, metav1.GetOptions{})
	if err != nil || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod has the status %+v, %v, want it running without a restart", now.Status, err)
	}
}

// kill kills the agent with SIGKILL on a node with cgroup v2.
func (d *deployment) kill(t testing.TB, c *node.Cgroups) {
	t.Helper()

	if err := c.Write(t, containerDir(c, d.pod)+"/cgroup.kill", "1"); err != nil {
		t.Fatal(err)
	}
}

// dropRule deletes a NodeQOS.
func (f fixture) dropRule(t testing.TB, name string) {
	t.Helper()

	rule := &unstructured.Unstructured{}
	rule.SetGroupVersionKind(ensurancev1alpha1.GroupVersion.WithKind("NodeQOS"))
	rule.SetName(name)

	if err := f.client.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
}

// compare reads a number from a file; "max" is larger than any.
func compare(read func(string) (string, error), name string, ok func(int64) bool) error {
	text, err := read(name)
	if err != nil {
		return err
	}

	n := int64(1<<63 - 1)
	if text != "max" {
		if n, err = strconv.ParseInt(text, 10, 64); err != nil {
			return err
		}
	}

	if !ok(n) {
		return fmt.Errorf("%s is %s", name, text)
	}

	return nil
}
