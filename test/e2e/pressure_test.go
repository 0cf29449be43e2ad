// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPressureDemo: a rush on a simulated node makes its agent take cpu from a batch pod and keep new pods away, and all of it is undone
// when the rush is over.
//
// It is the demo without what is shown, with a rush that lasts until the test has seen enough.
func TestPressureDemo(t *testing.T) {
	s := start(t, "--keep", "--demo", endlessRush(t), "--nodes", "1", "--workloads", "1", "--days", "1", "--only", "apiserver,controller-manager,scheduler")
	limit := func() (string, error) {
		found, err := filepath.Glob(filepath.Join(s.state, "hosts/agent-01/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/*/*.scope/cpu.max"))
		if err != nil {
			t.Fatal(err)
		}

		for _, file := range found {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}

			// No other pod there has a limit.
			if quota, _, _ := strings.Cut(string(content), " "); quota != "max" && quota != "" {
				return quota, nil
			}
		}

		return "max", nil
	}

	tainted := func() bool {
		return strings.Contains(s.kubectl(t, "get", "node", "agent-01", "-o", "jsonpath={.spec.taints[*].key}"), "interference.crane.io")
	}
	events := func(of string) []string {
		namespace := "shop"
		if of == "agent-01" {
			namespace = "default"
		}

		return strings.Fields(s.kubectl(t, "get", "events", "-n", namespace, "--field-selector", "involvedObject.name="+of, "-o", "jsonpath={.items[*].reason}"))
	}

	throttled := func() error {
		quota, err := limit()
		if err != nil {
			return err
		}

		if quota == "max" || !tainted() {
			return fmt.Errorf("the quota is %s, tainted: %v", quota, tainted())
		}

		return nil
	}

	eventually(t, "the cruncher is throttled and the node tainted", throttled)
	eventually(t, "events of it", func() error {
		if pod, node := events("cruncher"), events("agent-01"); !slices.Contains(pod, "CPUThrottled") || !slices.Contains(node, "AvoidanceTriggered") {
			return fmt.Errorf("events of the pod %v, of the node %v", pod, node)
		}

		return nil
	})

	s.kubectl(t, "delete", "pod", "rush", "-n", "shop", "--grace-period=0", "--force")
	eventually(t, "all is given back and the node takes pods again", func() error {
		quota, err := limit()
		if err != nil {
			return err
		}

		if quota != "max" || tainted() {
			return fmt.Errorf("the quota is %s, tainted: %v", quota, tainted())
		}

		return nil
	})

	eventually(t, "events of that", func() error {
		if pod, node := events("cruncher"), events("agent-01"); !slices.Contains(pod, "CPURestored") || !slices.Contains(node, "RestoreTriggered") {
			return fmt.Errorf("events of the pod %v, of the node %v", pod, node)
		}

		return nil
	})

	s.interrupt(t)
	if quota, err := limit(); err != nil || quota != "max" {
		t.Errorf("after the end the quota is %s, error %v, want max", quota, err)
	}
}

// endlessRush is the scenario of the demo without what is shown, whose rush does not end by itself.
func endlessRush(t *testing.T) string {
	t.Helper()

	content, err := os.ReadFile("../../internal/testbed/playground/demo/demos/pressure.yaml")
	if err != nil {
		t.Fatal(err)
	}

	text, _, found := strings.Cut(string(content), "- at: 45s\n")
	if !found || !strings.Contains(text, "        sim.crane.io/duration: 45s\n") {
		t.Fatal("the demo differs from the one that this test changes, want a step at 45s with a duration of 45s")
	}

	text = strings.Replace(text, "        sim.crane.io/duration: 45s\n", "", 1)
	path := filepath.Join(t.TempDir(), "pressure.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}
