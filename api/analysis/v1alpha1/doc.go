// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of analysis.crane.io/v1alpha1: the configuration of analyses (RecommendationRule, the older
// Analytics, ConfigSet) and their results (Recommendation), with the schema markers and well-known keys of the group.
//
// +groupName=analysis.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
