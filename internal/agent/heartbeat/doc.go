// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package heartbeat records when each part of the agent was last active, for health checks and metrics.
package heartbeat
