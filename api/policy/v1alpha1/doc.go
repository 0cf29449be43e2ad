// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the file formats of Crane: DynamicSchedulerPolicy (scheduler.policy.crane.io/v1alpha1) and
// RecommendationConfiguration (analysis.crane.io/v1alpha1). They are files and not objects of the API server, so decoding
// validates what a schema validates for an object.
//
// +kubebuilder:object:generate=true
package v1alpha1
