// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller reconciles TimeSeriesPredictions and ClusterNodePredictions.
//
// Reconciler registers the series of a TimeSeriesPrediction with the predictor and writes their forecasts into the
// status about once per window: each write holds two windows, and the next one follows when less than one is left. In
// between it writes only when a metric becomes ready, fails or goes stale. NodeReconciler keeps one
// TimeSeriesPrediction for each node that a ClusterNodePrediction selects.
//
// The package handles the API objects. It does not depend on where samples come from or on how forecasts are computed
// (internal/prediction/predictor).
package controller
