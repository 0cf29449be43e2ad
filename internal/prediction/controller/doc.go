// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller takes TimeSeriesPredictions to forecasts, and ClusterNodePredictions to TimeSeriesPredictions.
//
// Reconciler tells the predictor which series a TimeSeriesPrediction is about, and writes their forecasts into its status
// about once per window: each write holds two windows, and the next comes when less than one is left. In between nothing
// is written, unless something became ready, stopped being so, or went stale. NodeReconciler keeps one
// TimeSeriesPrediction for each node that a ClusterNodePrediction selects.
//
// This package knows the API objects. It must not know where samples come from, nor how a forecast is made
// (internal/prediction/predictor does).
package controller
