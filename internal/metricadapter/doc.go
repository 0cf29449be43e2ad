// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricadapter is the binary metric-adapter: an API server behind the Kubernetes aggregation layer that serves the external
// and the custom metrics API. It puts three sources together, each a package of its own: Crane's metrics (cranemetrics), what
// PromQL defines (rules) and another adapter (remote).
//
// It reads and never writes, but for its certificate. It must not know how a forecast is made.
package metricadapter
