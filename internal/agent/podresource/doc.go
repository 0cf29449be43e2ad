// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresource sets the cgroup limits of pods on elastic resources, because the kubelet ignores gocrane.io/cpu and
// gocrane.io/memory. Limits are planned from the pod's spec alone; Manager compares them with the cgroups every period and lowers what is
// above. Lower values, such as those of a rule that throttles, stay. The elastic capacity of a node is advertised by
// internal/agent/elasticresource.
package podresource
