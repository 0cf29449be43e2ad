// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

// Package filesize lets a process survive the limit of the size of its files.
package filesize

// IgnoreSignal does nothing: there is no such signal on this system.
func IgnoreSignal() {}
