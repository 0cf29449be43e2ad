// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evpa is the controller of EffectiveVerticalPodAutoscalers, which sizes the requests of workloads.
//
// A reconcile covers all autoscalers of one namespace, because the usage of their workloads is read for a namespace at once. It observes
// (targets, usage, OOM kills, forecasts, metrics, other autoscalers of the pods), decides with package pkg/vertical for each container and
// resource, and writes the status and, unless the update mode is Off, a Recommendation. The adoption controller applies that value to
// pods like that of any other Recommendation: this package changes neither pods nor workloads and does not depend on how pods are
// resized.
package evpa
