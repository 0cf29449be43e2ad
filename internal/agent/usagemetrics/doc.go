// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usagemetrics shows what the agent measured last as metrics of Prometheus. It measures nothing itself: it reads the latest snapshot
// when somebody scrapes, and does nothing otherwise. A series goes away with its pod, and all of them where nobody looks any more.
package usagemetrics
