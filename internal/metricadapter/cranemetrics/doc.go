// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cranemetrics serves the two external metrics of Crane, crane_autoscaling_prediction and crane_autoscaling_cron, from
// caches of TimeSeriesPredictions and EffectiveHorizontalPodAutoscalers, so that a request for a metric sends no request itself.
// Package scalingmetric defines their values; this package depends neither on forecasting nor on Prometheus.
package cranemetrics
