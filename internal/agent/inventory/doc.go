// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory knows the pods of a node as the cluster does: names, priorities, labels, what they ask for, by the UID that a cgroup
// has as well. Pods come from a list or, for their names alone, from the kubelet's log directories on a host without an API server.
package inventory
