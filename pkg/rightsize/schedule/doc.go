// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule turns a quantile forecast into requests by the time of day, for containers that can be resized in
// place: a Plan for a day, made from the forecast alone, and a Course that follows the plan and reacts when use passes
// it.
//
// A plan is the exact optimum of what its Settings price: slack against the share of time above the request, over all
// schedules of whole hours with at most so many changes, each of them material. Every step carries its reason.
//
// The package must not know where a forecast comes from, what Kubernetes objects look like, nor how a request is applied.
package schedule
