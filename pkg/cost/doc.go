// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost prices resources. A PriceBook, which is data, defines what a node costs by its labels; Allocate allocates the
// cost of nodes to the workloads that run on them and reports the idle rest; SavingOf prices a change of requests. Amounts
// are whole billionths of the currency, so that the parts of a node add up to the node exactly.
//
// The package is pure: files, nodes and pods are read elsewhere.
package cost
