// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vertical decides what the containers of one workload should request, from what several estimators say: which of
// their answers counts, within which bounds, and whether it is time to change what is requested today.
//
// Decide is a function of the answers, of the policy and of when something was changed last. It has no clock and changes
// nothing. The percentile and OOM estimators are here too, as functions of what a container used and of when it was killed.
// This package must not know how a request is brought to a pod.
package vertical
