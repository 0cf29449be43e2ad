// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import "path/filepath"

// ThreadsFile is the path of the file that lists the threads of a group, by their ids in the PID namespace of the reader. Those of groups below
// it are not in it.
func (l Layout) ThreadsFile(group string) string {
	if l.Version == V2 {
		return filepath.Join(l.unified, group, "cgroup.threads")
	}
	return filepath.Join(l.cpu, group, "tasks")
}
