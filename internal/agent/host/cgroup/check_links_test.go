// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"crane.io/crane/internal/agent/host"
)

// listGroups returns the groups of all pods and containers.
func listGroups(t *testing.T, tree *Tree) (out []string) {
	t.Helper()

	if err := tree.Scan(); err != nil {
		t.Fatal(err)
	}

	for _, p := range tree.Pods() {
		out = append(out, p.Path)
		for _, c := range p.Containers {
			out = append(out, c.Path)
		}
	}

	return out
}

// TestCheckLinks compares a tree that scans incrementally with a fresh tree after random changes. A container that replaced another is
// found after RescanAll, or some scans later. The version must change exactly when the groups change.
func TestCheckLinks(t *testing.T) {
	_, dir, layout, tree := openRecording(t, "v2-systemd-containerd")
	tree.CheckLinks()
	rng := rand.New(rand.NewPCG(5, 6))
	next := 0
	id := func() string { next++; return fmt.Sprintf("%064x", next) }
	path := func(parts ...string) string { return filepath.Join(append([]string{dir, mountPoint}, parts...)...) }

	do := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	begin := func(pod string) { do(os.Mkdir(path(pod, "cri-containerd-"+id()+".scope"), 0o755)) }
	last := listGroups(t, tree)
	changes := tree.Version()
	for step := range 300 {
		pods := slices.Clone(tree.Pods())
		pod := pods[rng.IntN(len(pods))]
		end := func() bool {
			if len(pod.Containers) == 0 {
				return false
			}

			do(os.RemoveAll(path(pod.Containers[rng.IntN(len(pod.Containers))].Path)))
			return true
		}

		what := "nothing"
		switch rng.IntN(8) {
		case 0:
			what = "a pod with a container"
			name := filepath.Join(layout.Pods, fmt.Sprintf("kubepods-pod%08x_2222_3333_4444_555555555555.slice", step))
			do(os.Mkdir(path(name), 0o755))
			begin(name)

		case 1:
			what = "a pod without"
			do(os.Mkdir(path(layout.Pods, fmt.Sprintf("kubepods-pod%08x_2222_3333_4444_666666666666.slice", step)), 0o755))

		case 2:
			if len(pods) > 2 {
				what = "a pod goes"
				do(os.RemoveAll(path(pod.Path)))
			}

		case 3:
			what = "a container comes"
			begin(pod.Path)

		case 4:
			if end() {
				what = "a container goes"
			}

		case 5:
			if end() {
				what = "a container is started anew"
				begin(pod.Path)

				if rng.IntN(2) == 0 {
					tree.RescanAll()
				} else {
					for range scansPerRescan - 1 {
						if err := tree.Scan(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}

		got := listGroups(t, tree)
		fresh := NewTree(layout, &host.Reader{})
		if want := listGroups(t, fresh); !slices.Equal(got, want) {
			t.Fatalf("step %d, %s: %d groups, want %d", step, what, len(got), len(want))
		}

		if changed := tree.Version() != changes; changed != !slices.Equal(got, last) {
			t.Fatalf("step %d, %s: version changed: %t, want %t as the groups", step, what, changed, !changed)
		}

		last = got
		changes = tree.Version()
	}
}

// TestLinks checks that link counts include subdirectories, where the file system supports it.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	before, err := host.Links(dir)
	if err != nil {
		t.Fatal(err)
	}

	if before < 2 {
		t.Skip("this file system counts no directories")
	}

	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}

	if after, err := host.Links(dir); err != nil || after != before+1 {
		t.Errorf("%d links, %v; want %d", after, err, before+1)
	}
	if _, err := host.Links(filepath.Join(dir, "nothing")); err == nil {
		t.Error("Links of a missing directory = nil, want an error")
	}
}
