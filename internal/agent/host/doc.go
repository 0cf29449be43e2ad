// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host reads files of the Linux kernel (/proc, /sys and PSI) below a configurable root, and state files of the kubelet. It
// rejects truncated files and does not allocate after a file is open, because the agent reads hundreds of files every second. Cgroups of
// pods are in its subpackage cgroup.
package host
