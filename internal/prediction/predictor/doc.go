// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package predictor owns the models of live series: the one place that knows, for each series that somebody asked for,
// what it did and what it will do.
//
// A series is known by what is queried and by how it is forecast (Request); who asks is no part of it, so two callers of
// one series share the queries and the model. Callers say what they want (Set), look at how it stands (Status), and take
// forecasts (Forecast); none of these calls waits for the source. Behind them a bounded number of workers reads: the
// whole history once, or a checkpoint instead of it, and then only what is new, many series with one query.
//
// A source that fails is asked less and less often, while forecasts are still served and say how old they are. As the
// future arrives it is compared with what was forecast of it (Accuracy).
//
// It knows the source of history and the models. It must not know Kubernetes objects, nor what a forecast is for.
package predictor
