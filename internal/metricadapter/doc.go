// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricadapter is the binary metric-adapter: an API server behind the Kubernetes aggregation layer that serves the external
// and the custom metrics API. It combines three sources, each in a package of its own: Crane's metrics (cranemetrics), metrics
// defined by PromQL rules (rules) and another adapter (remote).
//
// It writes nothing but its certificate, and does not depend on the way forecasts are made.
package metricadapter
