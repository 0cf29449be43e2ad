// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vertical decides what the containers of a workload should request: which answer of several estimators counts, within which
// bounds, and whether the current request is changed now.
//
// Decide is a function of the answers, the policy and the times of the last changes; it has no clock. The percentile and OOM
// estimators are functions of the usage of a container and of its kills. The package does not depend on the way requests are applied
// to pods.
package vertical
