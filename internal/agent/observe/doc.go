// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe measures the node and its pods: each measurement reads the counters of /proc and of cgroups and computes rates and shares.
// Values that cannot be read, or were read only once, are unknown and never zero. It identifies pods by UID.
package observe
