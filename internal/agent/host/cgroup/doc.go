// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds the cgroups of pods and reads them, whatever made them: cgroup v1, v2 and both side by side (hybrid), the
// kubelet's drivers cgroupfs and systemd, the runtimes containerd, CRI-O and Docker. It knows a pod by its UID alone, since that is
// all that a cgroup's name tells, and writes nothing.
package cgroup
