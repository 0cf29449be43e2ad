// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kernel simulates the part of a Linux kernel that a node agent reads and writes: trees of /proc and cgroup
// files that reject and apply writes like the kernel (Tree, and Machine for a whole host). It is for tests and simulated
// nodes.
package kernel
