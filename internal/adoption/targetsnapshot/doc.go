// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package targetsnapshot connects Kubernetes with the decisions of pkg/adoption: it reads a snapshot of a target (pods, budgets,
// autoscaler, Recommendation) and builds the requests that a plan consists of. The controller sends these requests, the command
// line prints them, and the webhook for new pods uses the conversions. The package itself sends nothing.
package targetsnapshot
