// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recommend defines the plans that all recommenders return; its subpackages are the recommenders. Each computes a
// plan with its reasons from plain input, so that it runs in craned, in the command line and in a replay of history alike.
// Reading input and applying plans do not belong here.
package recommend
