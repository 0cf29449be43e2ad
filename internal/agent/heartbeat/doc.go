// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package heartbeat knows when each part of the agent was last seen at work: health checks and metrics follow it. It knows nothing of what
// the parts do.
package heartbeat
