// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host reads files of the Linux kernel: /proc, /sys and pressure (PSI), below a root that need not be /. It parses what the
// kernel writes, refuses half a file, and allocates nothing once a file is open, because a node agent reads some hundred files each
// second. It knows nothing of pods; cgroup trees are the package cgroup's.
package host
