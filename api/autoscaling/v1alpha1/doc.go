// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of autoscaling.crane.io/v1alpha1: EffectiveHorizontalPodAutoscaler (an HPA with
// forecasts and cron schedules), Substitute (the target of its preview) and EffectiveVerticalPodAutoscaler, with the schema
// markers and well-known keys of the group.
//
// +groupName=autoscaling.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
