// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package act is the only part of the agent that changes a node. What it changes it first writes to a journal, so that an agent that is
// killed at any point is undone by the next one; what somebody else has changed meanwhile it leaves alone.
package act
