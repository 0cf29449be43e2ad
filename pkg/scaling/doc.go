// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaling implements the arithmetic of horizontal scaling: the algorithm of the HorizontalPodAutoscaler, cron windows, and
// the replicas that a forecast asks for.
//
// It works on plain values and has no clock. The controller of EffectiveHorizontalPodAutoscalers uses it to compute previews, the
// metric adapter to serve forecasts and cron windows, and package replay to compare ways of scaling.
package scaling
