// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scalingmetric defines the two external metrics that Crane serves to HPAs: how a selector identifies one value, which
// forecast it is computed from, and how it is encoded without loss of precision.
//
// The controller of EffectiveHorizontalPodAutoscalers uses it to decide whether a forecast is usable, and the metric adapter to
// answer requests, so that both agree. It reads API objects that are passed in and has no clock.
package scalingmetric
