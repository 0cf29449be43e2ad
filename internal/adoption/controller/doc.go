// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller applies Recommendations to their targets by their adoption type: as an annotation of the target and,
// with Auto, to its running pods, in steps that can be rolled back.
//
// Reconcile handles one target with all of its Recommendations. It reads a snapshot (target, pods, budgets), calls pkg/adoption
// for a decision, stores the state on the target, and then carries out the plan. The stored state survives craned, the
// Recommendation and the rule, so that no change is made twice and each can be reverted. The package does not know how a value
// was recommended.
package controller
