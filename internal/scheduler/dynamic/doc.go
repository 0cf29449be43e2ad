// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dynamic is the scheduler plugin Dynamic, which filters and scores nodes by measured load with pkg/nodeload.
//
// It keeps the reported and the pending load of every node and records its latest answers for explanations. It
// imports the interfaces of the scheduler framework and not kube-scheduler. It has no clock of its own and no
// deciding goroutine, so the simulator drives it in virtual time with the same results.
//
// Locks, outermost first: Factory.mu, attemptRing.mu, entry.mu, history.mu. None is held over a call of the
// framework. Filter and Score usually take none: they load a pointer to a view built when the node changed.
package dynamic
