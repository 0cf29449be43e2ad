// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodehost_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/testbed/playground/nodehost"
	"crane.io/crane/internal/testbed/simnode"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

type greedy struct{}

func (greedy) Use(*corev1.Pod, string, time.Time) simnode.Use {
	return simnode.Use{CPU: 3, Memory: 512 << 20, Cache: 128 << 20, Known: true}
}

func pod(uid, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "shop", Name: "hog"},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{QOSClass: corev1.PodQOSBestEffort, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", ContainerID: "containerd://" + id},
		}},
	}
}

// TestLimitsHold: a limit written to a container's cgroup bounds the container from the next step on, until it is
// removed. Nodes without a host are not affected.
func TestLimitsHold(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	set := nodehost.New(greedy{}, clk)

	dir := t.TempDir()
	spec := simnode.NodeSpec{Name: "n1", CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi")}
	if err := set.Add(dir, spec); err != nil {
		t.Fatal(err)
	}

	hog := pod("6f3a1c52-0000-4000-8000-000000000001", "n1")
	running := []simnode.ContainerState{{Pod: hog, Container: "app", Node: "n1", ID: "containerd://" + id}}
	step := func(containers []simnode.ContainerState) {
		t.Helper()

		clk.Step(time.Second)
		if err := set.Follow(containers); err != nil {
			t.Fatal(err)
		}
	}

	step(running)
	step(running)

	if use := set.Use(hog, "app", clk.Now()); use.CPU != 3 || use.Memory != 512<<20 || use.Cache != 128<<20 {
		t.Errorf("Use without a limit = %+v, want 3 cores, 512 MiB, 128 MiB of cache", use)
	}

	limit := group(t, dir)
	if err := os.WriteFile(filepath.Join(limit, "cpu.max"), []byte("50000 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	step(running)
	if use := set.Use(hog, "app", clk.Now()); use.CPU != 0.5 {
		t.Errorf("Use with a limit of half a core = %v cores, want 0.5", use.CPU)
	}
	if use := set.Use(pod("6f3a1c52-0000-4000-8000-000000000002", "n2"), "app", clk.Now()); use.CPU != 3 {
		t.Errorf("Use on a node without a host = %v cores, want 3", use.CPU)
	}

	step(nil)
	if _, err := os.Stat(limit); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the cgroup of a removed pod: %v, want that it does not exist", err)
	}
	if use := set.Use(hog, "app", clk.Now()); use.CPU != 3 {
		t.Errorf("Use of a removed pod = %v cores, want 3", use.CPU)
	}
}

// TestRestart: a container's next run has its own cgroup.
func TestRestart(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	set := nodehost.New(greedy{}, clk)
	dir := t.TempDir()
	if err := set.Add(dir, simnode.NodeSpec{Name: "n1", CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi")}); err != nil {
		t.Fatal(err)
	}

	hog := pod("6f3a1c52-0000-4000-8000-000000000001", "n1")
	for _, run := range []string{id, strings.Repeat("a", 64)} {
		clk.Step(time.Second)
		if err := set.Follow([]simnode.ContainerState{{Pod: hog, Container: "app", Node: "n1", ID: "containerd://" + run}}); err != nil {
			t.Fatal(err)
		}

		if got := filepath.Base(group(t, dir)); !strings.Contains(got, run) {
			t.Errorf("cgroup after Follow = %s, want a name with %s", got, run)
		}
	}
}

// group returns the only container cgroup of a host.
func group(t *testing.T, dir string) string {
	t.Helper()

	found, err := filepath.Glob(filepath.Join(dir, "sys/fs/cgroup/*/*/*/*.scope"))
	if err != nil || len(found) != 1 {
		t.Fatalf("container cgroups of the host = %v, error %v; want 1", found, err)
	}

	return found[0]
}
