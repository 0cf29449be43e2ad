// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package calibrate sizes CPU to a target: the share of the time that usage may exceed the request. The request of each
// block of the day is a quantile of the same block of the past days times a multiplier. The multiplier is the smallest one
// that met the target in a replay of the container's own past days, in which each day was sized from the days before it, as
// it will be in production: with the reaction to usage above the request if one acts on the workload, without it if none does.
//
// A Plan has the achieved share beside the target, and the result of each multiplier. Reading usage, applying requests and
// printing do not belong here.
package calibrate
