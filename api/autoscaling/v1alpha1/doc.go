// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of autoscaling.crane.io/v1alpha1: EffectiveHorizontalPodAutoscaler (an HPA that looks
// ahead and knows the clock), Substitute (its stand-in target for a preview) and EffectiveVerticalPodAutoscaler. It holds
// types, their schema markers and the well-known keys of the group; it knows nothing of how replicas are counted.
//
// +groupName=autoscaling.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
