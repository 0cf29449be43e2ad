// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaler tests Crane's load taint with the scheduling simulation of a node autoscaler. It is in a module of
// its own, so that the autoscaler's dependencies never move ours.
package autoscaler
