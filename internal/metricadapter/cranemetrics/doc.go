// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cranemetrics serves the two external metrics that are Crane's own, crane_autoscaling_prediction and
// crane_autoscaling_cron, from caches of TimeSeriesPredictions and EffectiveHorizontalPodAutoscalers: a request asks nobody.
// What the values mean is internal/autoscaling/scalingmetric's; this package knows neither forecasting nor Prometheus.
package cranemetrics
