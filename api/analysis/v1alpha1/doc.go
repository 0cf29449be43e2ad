// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of analysis.crane.io/v1alpha1: what is to be analysed (RecommendationRule, the older
// Analytics, ConfigSet) and what came of it (Recommendation). It holds types, their schema markers and the well-known
// keys of the group; it knows nothing of how a recommendation is made.
//
// +groupName=analysis.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
