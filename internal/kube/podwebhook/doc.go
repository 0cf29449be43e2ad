// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podwebhook changes pods when they are created. Several parts of Crane may add operations: a chain calls their mutators
// in order. The pod is always created, without the changes of a mutator that failed.
//
// It is independent of the mutators.
package podwebhook
