// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard serves the web UI and its API (package contract): sessions, bounds, compression and errors. What the pages show comes
// from a Backend for each cluster; the package computes no recommendation of its own.
package dashboard
