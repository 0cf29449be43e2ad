// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller turns RecommendationRules into Recommendations.
//
// RuleReconciler evaluates rules in runs, one or several batches each. A batch observes (the selected workloads, the
// existing Recommendations, and the usage of all workloads in one batch), decides (package pkg/recommend and its
// subpackages, which are pure) and acts (one write of each Recommendation and one of its status). Nothing is written before
// everything was read, so that a failing source of history leaves all objects as they were, and nothing is deleted after an
// incomplete observation.
//
// Reconciler exports the value of a Recommendation as metrics, and deletes the Recommendation when its target is deleted.
//
// This package contains the API objects of Crane and their gocrane formats. The computation of numbers does not belong here.
package controller
