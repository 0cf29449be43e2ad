// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pathlength counts the functions between a sample in Prometheus and the patch of a pod; hack/count-path.sh runs it.
package pathlength
