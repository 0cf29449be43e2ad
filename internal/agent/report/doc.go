// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report reports the agent's actions and their reasons as events, audit records, metrics and log lines. It never blocks: reports
// that cannot be written are dropped and counted.
package report
