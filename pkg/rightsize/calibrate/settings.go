// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"time"

	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

const day = 24 * time.Hour

// Settings defines how requests are computed.
type Settings struct {
	// Target is the share of the time that usage may exceed the request: 0.005 is 7 minutes a day.
	Target units.Ratio
	// Quantile of the usage of a block over the days of the window.
	Quantile units.Ratio
	// Block is the time for which the request is constant; it divides a day. A day is one request.
	Block time.Duration
	// Reach is the time before and after a block whose usage counts too, so that a cycle may shift.
	Reach time.Duration
	// Window is the number of days of usage, and of replayed days.
	Window int
	// Newest is the number of newest days whose quantile, over the whole day, is tried beside that of all days; 0 for none. Usage whose level
	// moves is cheaper to size by them, if a reaction corrects what they miss.
	Newest int
	// MinDays is the number of observed days below which there is no plan.
	MinDays int
	// Reaction is the reaction that acts on the workload; nil if none does.
	Reaction *Reaction
}

// Reaction raises the request within the day. A sample exceeds the request for some minutes before it is known; a reaction
// cannot avoid these.
type Reaction struct {
	// Headroom is the factor of the highest usage of the last minutes to which the request is raised.
	Headroom float64
	// Hold is the time for which the raised request is held after the last raise.
	Hold time.Duration
	// Delay is the age at which a sample is known and acted on.
	Delay time.Duration
}

// DefaultTarget is the share of the time above the request that users choose by default: 7.2 minutes a day.
const DefaultTarget units.Ratio = 0.005

// LowestTarget is the lowest target that can be chosen. Lower ones were missed by a factor of two on every fourth series.
const LowestTarget units.Ratio = 0.0025

// DefaultSettings returns the settings for workloads whose pods are resized in place within the day. The figures were
// chosen on families of series other than those they were scored on; see docs/explanation/rightsizing.md.
func DefaultSettings() Settings {
	return Settings{
		Target:   DefaultTarget,
		Quantile: 0.98,
		Block:    3 * time.Hour,
		Reach:    15 * time.Minute,
		Window:   14,
		Newest:   3,
		MinDays:  7,
		Reaction: &Reaction{Headroom: 1.3, Hold: time.Hour, Delay: 2 * time.Minute},
	}
}

// ConstantSettings returns the settings for workloads on which nothing acts within the day: one request, no reaction.
func ConstantSettings() Settings {
	s := DefaultSettings()
	s.Block = day
	s.Reach = 0
	s.Newest = 0
	s.Reaction = nil

	return s
}

// CheckTarget adds an error if a target cannot be chosen.
func CheckTarget(errs *settings.Errors, path string, target units.Ratio) {
	errs.Check(target >= LowestTarget && target <= 0.5, path, target, "must be 0.0025 to 0.5 (0.005 is 7 minutes a day)")
}

// multiplierCount is the number of multipliers: 0.15 to 2.7, each 7.9 % above the one before. With a reaction, low ones are cheap on usage
// that is mostly far below its quantile.
const multiplierCount = 39

const (
	highestMultiplier = 2.7
	multiplierStep    = 1.0793744
)
