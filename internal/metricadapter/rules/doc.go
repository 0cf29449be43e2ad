// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules serves external and custom metrics that PromQL defines, by a configuration of prometheus-adapter. What a rule means is
// internal/metrics/promadapter's; this package asks the server, finds the objects that a selector means in caches, and turns
// series into values. A request costs queries of the server with the history, and none of the Kubernetes API.
package rules
