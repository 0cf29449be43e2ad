// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package targetsnapshot stands between Kubernetes and the decisions of package pkg/adoption: it reads what they need (a target with
// its pods, budgets, autoscaler and Recommendation), and writes down as requests what they want. The controller, which sends
// these requests, the command line, which prints them, and the webhook for new pods share it. It sends nothing.
package targetsnapshot
