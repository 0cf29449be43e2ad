// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kernel stands in for the part of a Linux kernel that a node agent reads and writes: trees of /proc and cgroup files, recorded
// on hosts (Recorded) or kept up to date by a simulation that refuses what the kernel refuses and obeys what it takes (Tree, and Machine
// for a whole host). It is for tests and simulated nodes; an agent does not know that it reads one.
package kernel
