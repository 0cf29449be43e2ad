// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oomrecord records containers that were killed for lack of memory: it detects them in the status of pods, stores
// them in one ConfigMap, and provides them to recommenders. The records themselves are defined in package pkg/oom.
package oomrecord
