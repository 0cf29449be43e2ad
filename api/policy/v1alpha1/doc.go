// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the file formats of Crane: DynamicSchedulerPolicy (scheduler.policy.crane.io/v1alpha1) and
// RecommendationConfiguration (analysis.crane.io/v1alpha1). They are files, never objects of the API server, so what a
// schema checks for an object is checked here when a file is decoded. It knows nothing of where files lie or who uses
// them.
//
// +kubebuilder:object:generate=true
package v1alpha1
