// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oomrecord records containers that were killed for lack of memory: it sees them in the statuses of pods, keeps them in
// one ConfigMap, and hands them to whoever sizes containers. What a kill is, and how many are kept, is package pkg/oom's.
package oomrecord
