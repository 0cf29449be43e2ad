// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsapi serves metrics.k8s.io/v1beta1 like an aggregated API server: discovery, NodeMetrics and
// PodMetrics, as JSON, from the samples of simulated nodes.
package metricsapi
