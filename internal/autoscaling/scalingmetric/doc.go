// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scalingmetric is what the two external metrics that Crane serves to HPAs mean: how one value is selected, which
// forecast it comes from and when there is none, and how an amount is written without losing its precision.
//
// The controller of EffectiveHorizontalPodAutoscalers asks it whether a forecast may take part, the metric adapter what to
// answer, so that both say the same. It reads API objects and knows neither where they come from nor the time.
package scalingmetric
