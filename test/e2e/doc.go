// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the system from the outside: the built binaries, started as a user starts them, and nothing of
// their insides.
package e2e
