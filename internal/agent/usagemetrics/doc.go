// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usagemetrics exports the agent's latest snapshot as Prometheus metrics at each scrape. Series disappear with their pod, and all
// of them when snapshots stop.
package usagemetrics
