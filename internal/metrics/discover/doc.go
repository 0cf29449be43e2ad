// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discover finds servers with the Prometheus HTTP API in a cluster. It recognizes their services by the names and labels of common
// installations, lists them in a fixed order, and reaches each through the service proxy of the API server, so that a kubeconfig is
// sufficient. Names and labels prove nothing, so it says which candidates are in a namespace that administrators use for monitoring. The caller probes
// these in order and selects one.
package discover
