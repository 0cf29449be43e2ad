// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of prediction.crane.io/v1alpha1: the forecast of a target's metrics
// (TimeSeriesPrediction), the same for each node (ClusterNodePrediction), and the settings of the forecasters, which
// autoscaling.crane.io shares. It contains types and schema markers only.
//
// +groupName=prediction.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
