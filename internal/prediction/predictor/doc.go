// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package predictor keeps the forecast models of live series, shared by all callers.
//
// A series is identified by its query and its forecast settings (Request), so two callers of one series share queries
// and model. Callers register requests (Set), read their state (Status) and read forecasts (Forecast); none of these
// calls waits for the source. A bounded number of workers reads the whole history once, or a checkpoint in its place,
// and afterward only new samples, many series per query.
//
// A failing source is queried with exponential backoff, while forecasts are still served with their age. Forecasts
// are compared with the samples that follow (Accuracy).
//
// The package depends on the source of history and on the models, not on Kubernetes objects or on the use of a
// forecast.
package predictor
