// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evpa keeps the requests of workloads as EffectiveVerticalPodAutoscalers say.
//
// A Reconcile looks at all autoscalers of one namespace, since what their workloads used is read for a namespace at once. It
// observes (targets, use, kills, forecasts, metrics, who else sizes the same pods), lets package pkg/vertical decide for each
// container and resource, and writes two things: the status, and, where the update mode is not Off, a Recommendation of its own. How
// that value reaches pods is the adoption controller's, as with any other Recommendation: this package touches no pod and no
// workload, and must not know how pods are resized.
package evpa
