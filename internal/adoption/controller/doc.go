// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller brings recommended values to their targets, as far as each Recommendation's adoption type says: into an
// annotation of the target, and, where it is Auto, into its running pods, step by step and with a way back.
//
// A Reconcile looks at one target with all of its Recommendations. It observes (target, pods, budgets), lets package
// pkg/adoption decide, writes down on the target what it is about to do, and then does it. What it has written down
// survives craned, the Recommendation and the rule; so nothing is done twice, and there is always a way back.
//
// This package must not know how a value was found.
package controller
