// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost turns sizes into money. A PriceBook, which is data, says what a node costs by its labels; Allocate
// deals the cost of nodes out to the workloads that run on them and keeps what nobody asked for apart; SavingOf says
// what a change of requests is worth. Amounts are whole numbers of a billionth of the currency, so that the parts of a
// node add up to the node, exactly.
//
// The package is pure: it knows neither where a price book lies nor how nodes and pods are listed.
package cost
