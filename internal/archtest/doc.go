// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the rules of the house as tests: who may import whom, how large a file may grow, what every
// package and file must carry. It has no code of its own. A rule names its reason, so that whoever breaks it learns
// what to do instead; bans on the standard library (os, net, time.Now below pkg/) are depguard's and forbidigo's, in
// .golangci.yaml.
package archtest
