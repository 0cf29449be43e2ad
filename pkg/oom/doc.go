// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oom keeps the book of containers that were killed for lack of memory: what a kill is, how two sightings of one
// are told from two kills, how many are kept, and how they are written down. It must not know where the book lies nor how
// a kill is seen.
package oom
