// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perf counts the cycles and instructions of pods with the kernel's perf events. Cycles per instruction rise when other pods
// contend for caches and memory bandwidth.
package perf
