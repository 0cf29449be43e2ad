// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaling is the arithmetic of horizontal scaling: what the HorizontalPodAutoscaler's algorithm would answer, when
// cron windows are open, and how many replicas a forecast asks for.
//
// It decides on plain values and changes nothing. The controller of EffectiveHorizontalPodAutoscalers uses it to say what an
// HPA would do where none may be created, the metric adapter to answer for predictions and cron windows, and the replay below
// it to show what each would have done. It knows nothing of Kubernetes clients and has no clock.
package scaling
