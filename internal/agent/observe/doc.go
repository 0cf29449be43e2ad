// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe measures a node and its pods: it reads the counters of /proc and of cgroups at each look and makes rates and shares of
// them. What cannot be read, or has only been read once, is unknown and never zero. It knows a pod by its UID and judges nothing.
package observe
