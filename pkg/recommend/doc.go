// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recommend is the room of the recommenders, one small package each: plain input in, a plan with its reasons
// out. Here is what their plans have in common. The package must not know where input comes from nor how a plan is
// carried out; the same recommender runs in craned, in the command line and in a replay over the past.
package recommend
