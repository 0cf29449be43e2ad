// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oom defines the records of containers that were killed for lack of memory: their identity, their limits and their
// format. Detection and storage do not belong here.
package oom
