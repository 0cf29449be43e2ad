// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recommend is the room of the recommenders, one small package each: plain input in, a plan with its reasons
// out. Here is what their plans have in common. The package must not know where input comes from nor how a plan is
// carried out; the same recommender runs in craned, in the command line and in a replay over the past.
package recommend

// Action is what a plan proposes to do with its target. The names are gocrane's.
type Action string

// The actions.
const (
	// NoAction leaves the target as it is: it already is as recommended.
	NoAction Action = "None"
	// Patch changes the target.
	Patch Action = "Patch"
)

// State says whether a plan has something to propose.
type State string

// The states.
const (
	// Ready plans hold at least one number.
	Ready State = "Ready"
	// Learning plans hold no number yet: the history is too short.
	Learning State = "Learning"
	// NoData plans hold no number: no use was found at all.
	NoData State = "NoData"
)
