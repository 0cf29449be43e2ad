// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller takes RecommendationRules to Recommendations, and Recommendations to their targets.
//
// RuleReconciler works in rounds. A round observes (the workloads that the rule selects, the Recommendations that
// there are, the use of all workloads in one batched pass), decides (package pkg/recommend/resource, which is pure)
// and acts (one write of each Recommendation and one of its status). Nothing is written before everything was
// observed, so that a source of history that fails leaves all objects as they were, and nothing is deleted unless the
// observation was complete.
//
// Reconciler looks after one Recommendation: it writes the value on the target where the adoption type says so,
// exports the value as a metric, and deletes the Recommendation when its target is gone.
//
// This package knows Crane's API objects and how gocrane wrote them. It must not know how a number is found.
package controller
