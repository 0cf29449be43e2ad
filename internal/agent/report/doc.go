// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report says what the agent does and why: as events, audit lines, metrics and in the log. It decides nothing and changes nothing
// but what tells; what it cannot get rid of it drops and counts, so that nobody waits for it.
package report
