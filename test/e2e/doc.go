// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the built binaries from the outside, started as a user starts them.
package e2e
