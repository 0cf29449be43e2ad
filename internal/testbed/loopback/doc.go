// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loopback keeps ports of 127.0.0.1 for processes that are yet to start, or to start again. It must not know what listens.
package loopback
