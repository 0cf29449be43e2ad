// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loopback reserves ports of 127.0.0.1 for processes that start later or restart.
package loopback
