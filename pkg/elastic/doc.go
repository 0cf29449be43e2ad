// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package elastic decides how much of a node can be offered to pods that may lose it again: what is neither reserved nor used nor
// expected to be used, less a margin.
//
//	offer = allocatable - reserve - need - margin
//	need  = max(forecast, use of non-elastic pods + exclusive and idle CPU)
//
// The advertised amount follows the offer down at once. It follows it up only after the offer was stable, and then by a limited share of the
// node per minute. It is never less than what pods hold; an offer below that is a deficit, which only an eviction can resolve. Immaterial
// changes are not written.
//
// An input that is missing, stale, in the future or out of range is unknown, and never zero. While an input is unknown the amount does not
// grow; it stays, or shrinks by what is known, and after a while shrinks to what pods hold. While the pods are unknown nothing changes.
//
// The package has no clock and no Kubernetes objects. Amounts are series.MilliCPU or series.Bytes, so that units cannot be confused.
package elastic
