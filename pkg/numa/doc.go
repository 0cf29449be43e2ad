// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package numa knows the zones of a machine: what each has free, into which of them a request fits, which to take, and
// which CPUs of a zone to hand out. A Node keeps the account of zones (for a scheduler), CPUSet and Ledger that of single
// CPUs (for an agent on the machine).
//
// The package is pure. It knows neither NodeResourceTopology objects nor pods: zones come as values, who holds something
// is a string, and annotations are read and written elsewhere. Nothing in it is safe for concurrent use.
package numa
