// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path/filepath"
)

// PerfDir returns the directory of a group in the perf_event hierarchy: that of v1 if mounted, else the v2 tree, which needs no
// controller for it (Documentation/admin-guide/cgroup-v2.rst, perf_event). It returns an error if there is neither.
func (l Layout) PerfDir(group string) (string, error) {
	if !filepath.IsLocal(group) {
		return "", fmt.Errorf("group %.80q is not below the root", group)
	}
	root := l.unified
	if l.Version != V2 {
		if v1 := findV1Root(filepath.Dir(l.cpu), "perf_event"); v1 != "" {
			root = v1
		}
	}
	if root == "" {
		return "", fmt.Errorf("cgroup %s has no controller perf_event", l.Version)
	}
	return filepath.Join(root, group), nil
}
