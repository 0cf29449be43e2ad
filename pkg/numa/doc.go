// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package numa models the NUMA zones of a machine: free amounts by zone, the zones for a request, and the CPUs of a zone. A Node tracks
// amounts by zone (for the scheduler), a CPUAllocator single CPUs (for the agent).
//
// The package is pure: zones are values, owners are strings, and API objects and annotations are converted by
// internal/kube/topologyconv. It is not safe for concurrent use.
package numa
