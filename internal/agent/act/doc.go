// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package act executes plans; it is the only part of the agent that changes a node. Each change is first written to a journal, so that the
// next agent can undo the changes of a killed one; values changed by other processes are left alone.
package act
