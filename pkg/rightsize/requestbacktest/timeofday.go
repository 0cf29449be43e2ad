// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/rightsize/schedule"
	"crane.io/crane/pkg/series"
)

// Names of the rules by the time of day; CPU only.
const (
	TimeOfDay = CranePrefix + "time-of-day"
	Blocks    = "blocks-3h"
)

// timeOfDayHistory is the history of the forecasts of TimeOfDay.
const timeOfDayHistory = 14 * day

// OfSchedule returns the rule of a schedule: a plan every midnight from a quantile forecast, followed with reactions.
func OfSchedule(name string, settings schedule.Settings) Rule {
	return Rule{Name: name, Follow: func() CoursePlanner {
		var last *scheduled
		return func(past History) (Course, error) {
			recent := past.Samples.Between(past.Now.Add(-timeOfDayHistory), past.Now)
			f, err := auto.Algorithm{}.Forecast(recent, day)
			if errors.Is(err, forecast.ErrEmpty) {
				if last != nil {
					return last, nil // the last request is kept
				}

				return nil, fmt.Errorf("%w: %w", ErrNoUse, err)
			}

			if err != nil {
				return nil, fmt.Errorf("forecasting: %w", err)
			}

			return last.next(f, settings, &last)
		}
	}}
}

// scheduled is a course that stores its last request.
type scheduled struct {
	*schedule.Course
	request float64
}

// next plans the following day; s is nil for the first.
func (s *scheduled) next(f forecast.Forecast, settings schedule.Settings, into **scheduled) (Course, error) {
	before := 0.0
	after := (*schedule.Course)(nil)
	if s != nil {
		before, after = s.request, s.Course
	}

	plan, err := schedule.New(f, before, settings)
	if err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}

	*into = &scheduled{Course: schedule.NewCourse(plan, settings, after)}
	return *into, nil
}

// Request implements Course.
func (s *scheduled) Request(at time.Time) float64 {
	s.request, _ = s.Course.Request(at)
	return s.request
}

// Figures of the three-hour blocks.
const (
	blockLength   = 3 * time.Hour
	blockQuantile = 0.995
	blockMargin   = 0.05
	blockDays     = 14
	blockDecay    = 0.8
	blockReach    = 15 * time.Minute
)

// blocks returns the simplest rule by the time of day: for each three-hour block the weighted p99.5 of the samples within 15
// minutes of the same block on up to 14 days, a day weighing 0.8 of the one after it, plus 5 %. It does not react.
func blocks() Rule {
	return Rule{Name: Blocks, Follow: func() CoursePlanner {
		return func(past History) (Course, error) {
			var b byBlock
			for i := range b.requests {
				b.requests[i] = blockRequest(past, time.Duration(i)*blockLength)
			}

			// A block without samples has the largest request of the others.
			highest := math.NaN()
			for _, v := range b.requests {
				if math.IsNaN(highest) || v > highest {
					highest = v
				}
			}

			if math.IsNaN(highest) {
				return nil, ErrNoUse
			}

			for i, v := range b.requests {
				if math.IsNaN(v) {
					b.requests[i] = highest
				}
			}

			return b, nil
		}
	}}
}

func blockRequest(past History, from time.Duration) float64 {
	var samples []weightedValue
	for ago := 1; ago <= blockDays; ago++ {
		start := past.Now.Add(-time.Duration(ago)*day + from)
		for _, v := range past.Samples.Between(start.Add(-blockReach), start.Add(blockLength+blockReach)).Values {
			if !series.IsGap(v) {
				samples = append(samples, weightedValue{v, math.Pow(blockDecay, float64(ago-1))})
			}
		}
	}

	return weightedQuantile(samples, blockQuantile) * (1 + blockMargin)
}

// byBlock holds the requests of the three-hour blocks of a day in UTC.
type byBlock struct {
	requests [day / blockLength]float64
}

// Request implements Course.
func (b byBlock) Request(at time.Time) float64 {
	return b.requests[at.Sub(series.DayOf(at).Start())/blockLength]
}

// Observe implements Course.
func (byBlock) Observe(time.Time, float64) {}
