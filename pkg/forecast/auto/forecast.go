// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
)

// capFactor bounds every forecast by this multiple of the largest sample.
const capFactor = 2

// Forecast returns the quantiles of the steps after the newest sample. It never declines: errors are an impossible
// horizon (forecast.ErrHorizon) and a model that has seen no usable sample (forecast.ErrEmpty).
func (m *Model) Forecast(horizon time.Duration) (forecast.Forecast, error) {
	return m.ForecastWith(Calendar{}, horizon)
}

// ForecastWith is Forecast with known holidays.
func (m *Model) ForecastWith(holidays Calendar, horizon time.Duration) (forecast.Forecast, error) {
	n := forecast.Steps(horizon, m.step)
	if n < 1 || n > forecast.MaxSteps {
		return forecast.Forecast{}, fmt.Errorf("%w: %s at a step of %s is not within 1 and %d steps",
			forecast.ErrHorizon, horizon, m.step, forecast.MaxSteps)
	}

	// The slot in progress counts only if the newest sample was its last.
	closed := m.closed()

	rows := newDayRows(closed.without(holidays), holidays.zone)
	if !rows.sampled {
		return forecast.Forecast{}, fmt.Errorf("%w: the model has seen none within %d days", forecast.ErrEmpty, historyDays)
	}

	origin := closed.head * m.layout.seconds()
	rows.setMidnight(time.Unix(origin, 0), holidays.zone)

	// A day whose clock is set forward reaches into the next one by an hour.
	clock := newWallClock(holidays.zone, origin, m.now().Add(horizon).Unix())
	longest := horizon
	if clock.zone != nil {
		longest += longestShift
	}

	ahead := int((longest + day - 1) / day)
	h := newHedge(newOutlook(rows, ahead), defaultTuning())

	out := forecast.Forecast{
		Start:   m.now(),
		Step:    m.step,
		Model:   h.name(),
		Period:  day,
		Periods: rows.fullRows(),
		Skill:   h.skill,
		Origins: h.origins,
		Reason:  h.reason(closed.recent.count),
		Values:  make([]forecast.Quantiles, n),
	}

	m.fill(out, h, origin, clock)
	closed.fillHolidays(out, holidays)
	out.Highs = closed.highs(out.Start, out.End(), holidays.zone)

	return out, nil
}

// longestShift is the most by which the clock of a zone is set forward.
const longestShift = 3 * time.Hour

// fill sets the values of a forecast, day by day from the origin on.
func (m *Model) fill(out forecast.Forecast, h *hedge, origin int64, clock wallClock) {
	limit := min(h.h.max*capFactor, forecast.MaxValue)
	filled := -1
	var p profile

	lastSlot := -1
	for i := range out.Values {
		// A history shorter than a slot starts before its origin.
		at := out.Start.Add(time.Duration(i) * out.Step).Unix()
		slot := int(max(0, clock.seconds(at)-clock.seconds(origin)) / m.layout.seconds())
		if slot == lastSlot {
			out.Values[i] = out.Values[i-1]
			continue
		}

		lastSlot = slot
		if ahead := slot / h.h.slots; ahead != filled {
			p = h.day(ahead)
			filled = ahead
		}

		for l := range out.Values[i] {
			out.Values[i][l] = min(float64(p[l*h.h.slots+slot%h.h.slots]), limit) * m.scale
		}
		out.Values[i] = out.Values[i].Ordered()
	}
}

// name returns the names of the experts with the largest weights.
func (h *hedge) name() string {
	const last = segmentCount - 1
	return "auto: " + h.experts[heaviest(h.weights[last][0])].name + "; upper: " + h.experts[heaviest(h.weights[last][1])].name
}

func heaviest(weights []float64) int {
	heaviestIndex := 0
	for i, w := range weights {
		if w > weights[heaviestIndex] {
			heaviestIndex = i
		}
	}

	return heaviestIndex
}

// reason returns what the history is too short for.
func (h *hedge) reason(slots int) string {
	observed := forecast.Span(time.Duration(slots) * day / time.Duration(h.h.slots))
	switch {
	case h.h.fullRows() == 0 && slots >= h.h.slots/2:
		return fmt.Sprintf("level only: no day of %s of history has samples for half of its time", observed)
	case h.h.fullRows() == 0:
		return fmt.Sprintf("level only: %s of history, %s needed for the time of day", observed, forecast.Span(day/2))
	case len(h.past[0]) == 0:
		return fmt.Sprintf("experts weigh alike: %s of history, %s needed to compare them", observed, forecast.Span(day*3/2))
	}

	return ""
}
