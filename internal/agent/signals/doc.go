// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signals puts together what was measured on a node (package observe) and what the cluster knows of its pods (package inventory)
// into what rules are judged by: metrics by name, gocrane's and Crane's own, and pods with their use.
package signals
