// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package elastic decides how much of a node may be offered to pods that can lose it again: what neither is reserved nor used nor
// expected to be used, less a margin.
//
//	offer = allocatable - reserve - need - margin
//	need  = max(forecast, use of everything that is not elastic + cpu that is held exclusively and idle)
//
// What a node advertises follows the offer down at once. It follows it up only after the offer has stayed above for a while, and then by a
// bounded share of the node in a minute. It is never less than what pods hold already: an offer below that is a deficit, which is told and
// which only an eviction can close. Changes that are not material are not written.
//
// An input that is missing, stale, from the future or no amount is unknown, and never zero. Then nothing is opened: what is advertised
// stays, or shrinks by what is known; when that has lasted, it shrinks to what pods hold. Where not even that is known nothing changes.
//
// The package has no clock and knows no object of Kubernetes. Amounts are of series.MilliCPU or series.Bytes, so that a unit cannot be
// taken for another one.
package elastic
