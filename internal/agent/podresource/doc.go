// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresource gives pods on elastic resources the limits that they asked for: a kubelet knows nothing of gocrane.io/cpu and
// gocrane.io/memory, so that their groups have no quota, no share and no limit of memory. What a pod's groups are to hold is planned
// from its spec alone; Manager compares that with what they hold, each period, and writes what lies above. What is less is somebody's
// who takes, such as a rule that throttles, and stays. What a node offers is elastic's.
package podresource
