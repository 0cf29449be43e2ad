// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsapi serves metrics.k8s.io/v1beta1 as an aggregated API server would: discovery, NodeMetrics and
// PodMetrics, as JSON. It shows the samples that it is given and measures nothing itself.
package metricsapi
