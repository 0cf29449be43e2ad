// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perf counts cycles and instructions of pods with the kernel's perf events: how many cycles a pod needs for an instruction says
// whether others are in the way of its caches and its memory. It is told which pods to count, and judges nothing.
package perf
