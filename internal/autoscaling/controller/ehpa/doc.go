// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ehpa is the controller of EffectiveHorizontalPodAutoscalers: it creates a HorizontalPodAutoscaler for each, with the forecast of
// its metrics as further metrics, and cron schedules as a floor of its replicas.
//
// A reconcile observes the cluster (the scale of the target, existing objects, other autoscalers of the pods, usable forecasts), decides
// in a pure function which objects and conditions should exist, and acts. The HPA controller of kube-controller-manager remains the
// engine. Where an HPA of another owner scales the pods, the package computes a preview with the same algorithm (pkg/scaling).
//
// The package depends neither on the way forecasts are made nor on the way they reach the HPA.
package ehpa
