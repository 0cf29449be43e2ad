// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baselines stores the usual behavior of a node's pods in a file, so that a restarted agent detects interference at once. It does
// not interpret the baselines.
package baselines
