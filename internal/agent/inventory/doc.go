// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory holds the cluster's view of a node's pods, such as names, priorities, labels and requests, by the UID used in cgroup
// names. Without an API server, names are read from the kubelet's log directories.
package inventory
