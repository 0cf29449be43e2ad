// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule computes requests by the time of day from a quantile forecast, for containers that can be resized in
// place: a Plan for a day, from the forecast alone, and a Course that follows the plan and reacts when usage exceeds it.
//
// A plan is the exact optimum by the prices of its Settings: slack against the share of time above the request, over all
// schedules of whole hours with a bounded number of material changes. Every step has its reason.
//
// Forecasting, Kubernetes objects and applying requests do not belong here.
package schedule
