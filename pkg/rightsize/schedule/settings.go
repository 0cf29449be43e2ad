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

// Bounds of Settings. In-place resize is cheap but not free: each one is an API write, a sync of the kubelet, and may be
// rejected.
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

// Settings define the costs and bounds of a schedule. The zero value is not valid; start with DefaultSettings.
type Settings struct {
	// Price is the price of violation in slack: with 3.5, one percent of time above the request costs as much as three and a
	// half percent of slack. Above 0.
	Price float64
	// Margin is added to the forecast, 0 to 1, for usage beyond the quantiles of the past.
	Margin series.Ratio
	// ChangeCost is the slack that one more planned change per day must save; 0 or more.
	ChangeCost float64
	// MinMove is the smallest relative change of a request, 0 to 0.5.
	MinMove series.Ratio
	// MaxDrop is the largest share by which one planned step lowers the request, above MinMove and below 1.
	MaxDrop series.Ratio
	// Changes is the number of planned changes in any 24 hours of one plan, 0 to MaxChanges.
	Changes int
	// Reactions is the number of reactions in a day in UTC, 0 to MaxReactions.
	Reactions int
	// Delay is the time from usage exceeding the request to the reaction; MinDelay or more.
	Delay time.Duration
	// Raise is the margin of a reaction above the observed usage, 0 to 1.
	Raise series.Ratio
}

// DefaultSettings returns Crane's default settings.
func DefaultSettings() Settings {
	return Settings{
		Price:      1.7,
		Margin:     0.02,
		ChangeCost: 0.003,
		MinMove:    0.10,
		MaxDrop:    0.5,
		Changes:    MaxChanges,
		Reactions:  MaxReactions,
		Delay:      MinDelay,
		Raise:      0.10,
	}
}

// Validate returns an error that names each invalid setting.
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
