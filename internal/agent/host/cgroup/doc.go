// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds and reads the cgroups of pods on cgroup v1, v2 and hybrid hosts, with the kubelet's drivers cgroupfs and systemd
// and the runtimes containerd, CRI-O and Docker. It identifies pods by UID, which is all that a group's name contains, and writes
// nothing.
package cgroup
