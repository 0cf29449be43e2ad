// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules serves external and custom metrics that PromQL rules of a prometheus-adapter configuration define. Package
// promadapter interprets the rules; this package queries the server, resolves selectors to objects through caches, and converts
// series to values. A request causes queries to Prometheus and none to the Kubernetes API.
package rules
