// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dynamic is the scheduler plugin Dynamic: a thin shell over pkg/nodeload. It keeps, for every node, what the
// node reports and what is on its way, asks pkg/nodeload whether a pod may go there and how well, and remembers its latest
// answers so that people can ask why.
//
// It imports the interfaces of the scheduler framework and not kube-scheduler. It has no clock of its own and no goroutine
// that decides: whoever drives it in virtual time (the simulator) calls the same methods and gets the same answers.
//
// Locks, outermost first: Factory.mu, ring.mu, entry.mu, history.mu. None is held over a call of the framework. Filter and
// Score take none in the usual case: they load a pointer to what was made when something about the node changed.
package dynamic
