// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package savings accumulates what a cluster cost and what adopted recommendations saved, by day and by namespace and month. A Record is
// bounded and has a text form that is stored outside of the package. It has no clock and no I/O.
package savings
