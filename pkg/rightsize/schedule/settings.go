// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/series"
)

// Limits of what Settings may ask for. In-place resize is cheap but not free: each one is an API write, a pass through
// the kubelet and a chance to be refused.
const (
	// MinStep is the shortest planned step.
	MinStep = time.Hour
	// MaxChanges bounds the planned changes of a day.
	MaxChanges = 8
	// MaxReactions bounds the reactions of a day.
	MaxReactions = 6
	// MinDelay is the shortest time between use passing the request and the reaction to it.
	MinDelay = 2 * time.Minute
)

// Settings say what a schedule weighs against what. The zero value is not valid; begin with DefaultSettings.
type Settings struct {
	// Price of violation in slack: 3.5 means that one point (of a hundred) of time above the request is worth three and
	// a half points of slack. Above 0.
	Price float64
	// Margin is put on top of the forecast, 0 to 1: it holds what no quantile of the past foresees.
	Margin series.Ratio
	// ChangeCost is what one more planned change a day must save, in slack; 0 or more.
	ChangeCost float64
	// MinMove is the smallest relative change of a request that is made, 0 to 0.5.
	MinMove series.Ratio
	// MaxDrop is the largest share of the request that one planned step gives up, above MinMove and below 1.
	MaxDrop series.Ratio
	// Changes is the number of planned changes in any 24 hours of one plan, 0 to MaxChanges.
	Changes int
	// Reactions is the number of reactions in a day in UTC, 0 to MaxReactions.
	Reactions int
	// Delay is how long after use passed the request a reaction comes; MinDelay or more.
	Delay time.Duration
	// Raise is how far above the use that was seen a reaction goes, 0 to 1.
	Raise series.Ratio
}

// DefaultSettings are those that Crane uses where no others are named.
func DefaultSettings() Settings {
	return Settings{
		Price: 1.7, Margin: 0.02, ChangeCost: 0.003, MinMove: 0.10, MaxDrop: 0.5, Changes: MaxChanges,
		Reactions: MaxReactions, Delay: MinDelay, Raise: 0.10,
	}
}

// Validate says what is wrong, naming each setting.
func (s Settings) Validate() error {
	var errs []error
	within := func(name string, v, lowest, highest float64) {
		if !(v >= lowest && v <= highest) {
			errs = append(errs, fmt.Errorf("%s %v: must be %v to %v", name, v, lowest, highest))
		}
	}
	within("price", s.Price, math.SmallestNonzeroFloat64, 1e6)
	within("margin", float64(s.Margin), 0, 1)
	within("change cost", s.ChangeCost, 0, 1e6)
	within("smallest move", float64(s.MinMove), 0, 0.5)
	within("largest drop", float64(s.MaxDrop), 0.05, 0.99)
	within("changes a day", float64(s.Changes), 0, MaxChanges)
	within("reactions a day", float64(s.Reactions), 0, MaxReactions)
	within("raise", float64(s.Raise), 0, 1)
	if s.MaxDrop <= s.MinMove {
		errs = append(errs, fmt.Errorf("largest drop %v: must be above the smallest move %v", s.MaxDrop, s.MinMove))
	}
	if s.Delay < MinDelay {
		errs = append(errs, fmt.Errorf("delay %v: must be at least %v", s.Delay, MinDelay))
	}
	return errors.Join(errs...)
}
