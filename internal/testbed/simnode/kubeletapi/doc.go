// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletapi serves the read-only endpoints of one simulated node's kubelet: health, pods, configuration,
// metrics in cAdvisor's and the kubelet's own names, and the stats summary. It shows what it is given and decides
// nothing; what a simulated container cannot do (exec, logs) it refuses in clear words.
package kubeletapi
