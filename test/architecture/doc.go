// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package architecture checks the structure of the repository: which package may import which, package names, file
// sizes, package comments and license headers.
//
// Each rule states its reason, and each has a test with a planted violation. Bans on the standard library (os, net,
// time.Now below pkg/) are checked by depguard and forbidigo, see .golangci.yaml.
package architecture
