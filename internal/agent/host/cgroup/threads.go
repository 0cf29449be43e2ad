// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import "path/filepath"

// ThreadsFile returns the path of the file that lists a group's threads by their IDs in the reader's PID namespace. It excludes threads
// of child groups.
func (l Layout) ThreadsFile(group string) string {
	if l.Version == V2 {
		return filepath.Join(l.unified, group, "cgroup.threads")
	}
	return filepath.Join(l.cpu, group, "tasks")
}
