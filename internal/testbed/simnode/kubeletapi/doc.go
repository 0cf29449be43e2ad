// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletapi serves the read-only endpoints of a simulated node's kubelet: health, pods, configuration, metrics
// with the names of cAdvisor and the kubelet, and the stats summary. Unsupported operations (exec, logs) return an
// error.
package kubeletapi
