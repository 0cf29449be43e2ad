// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// SettingFiles returns the cgroup files of either version that an agent may write.
func SettingFiles() []string {
	return []string{
		"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.shares", "cpuset.cpus", "cpuset.mems", "memory.limit_in_bytes",
		"memory.soft_limit_in_bytes", "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle", "memory.high", "memory.low", "memory.max",
	}
}

// Settings reads the SettingFiles of every pod and container of a node in namespaces by path. The cgroups of QoS classes belong to the kubelet.
func (n *Node) Settings(t testing.TB) map[string]string {
	t.Helper()

	base := n.Path("/sys/fs/cgroup")
	found := map[string]string{}
	err := filepath.WalkDir(base, func(path string, entry fs.DirEntry, err error) error {
		// Errors are ignored, because pods come and go.
		if err == nil && !entry.IsDir() && strings.Contains(path, "/pod") && slices.Contains(SettingFiles(), entry.Name()) {
			if content, err := os.ReadFile(path); err == nil {
				found[strings.TrimPrefix(path, base)] = strings.TrimSpace(string(content))
			}
		}

		return nil
	})

	if err != nil || len(found) == 0 {
		t.Fatalf("settings below %s: %d files, %v, want some", base, len(found), err)
	}

	return found
}

// ChangedSettings returns the changed settings, one line each, except those that appeared or disappeared.
func ChangedSettings(before, now map[string]string) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if v, ok := now[path]; ok && v != before[path] {
			out = append(out, fmt.Sprintf("%s: %s, was %s", path, v, before[path]))
		}
	}

	return out
}
