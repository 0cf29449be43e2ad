// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
)

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
	return m.forecast(n, defaultTuning(), holidays)
}

func (m *Model) forecast(n int, t tuning, holidays Calendar) (forecast.Forecast, error) {
	whole := m.closed()
	view := whole.without(holidays)
	newest := view.regime(t)
	slots := view.season(newest, t)
	g := newGrid(view, slots, newest)
	if !g.known {
		return forecast.Forecast{}, fmt.Errorf("%w: the model has seen none within %d days", forecast.ErrEmpty, historyDays)
	}
	o := newGate(newBanks(view, g, t), view.layout.unit)
	out := forecast.Forecast{
		Start: m.now(), Step: m.step, Model: o.name(), Period: time.Duration(slots) * m.layout.unit, Periods: g.fullRows(),
		Skill: o.skill, Reason: o.reason(view, newest), Values: make([]forecast.Quantiles, n),
	}
	m.fill(out, o, time.Unix(view.head*view.layout.seconds(), 0))
	whole.fillHolidays(out, o, holidays)
	return out, nil
}

// fillHolidays replaces the forecast of holidays.
func (m *Model) fillHolidays(out forecast.Forecast, o *gate, c Calendar) {
	if len(c.days) == 0 {
		return
	}
	above := tailsAbove(o.margin)
	last, known := int64(0), false
	var q forecast.Quantiles
	for i := range out.Values {
		at := out.Start.Add(time.Duration(i) * out.Step)
		if !c.Holiday(at) {
			continue
		}
		if index := floorDiv(at.Unix(), m.layout.seconds()); index != last || i == 0 {
			last = index
			if q, known = m.holiday(c, at, above); known {
				q = scaled(q, m.scale)
			}
		}
		if known {
			out.Values[i] = q
		}
	}
}

// fill sets the values of a forecast, season by season from the origin on.
func (m *Model) fill(out forecast.Forecast, o *gate, origin time.Time) {
	g := o.banks.grid
	limit := min(g.max*o.banks.tuning.capFactor, forecast.MaxValue)
	unit := m.layout.unit
	at := out.Start.Sub(origin)
	filled := -1
	var season seasonForecast
	var q forecast.Quantiles
	lastSlot, lastSub := -1, -1
	for i := range out.Values {
		// A history shorter than a unit starts before its origin.
		slot := int(max(0, at) / unit)
		sub := int(max(0, at)%unit) * g.sub / int(unit)
		if slot != lastSlot || sub != lastSub {
			if ahead := slot / g.slots; ahead != filled {
				season, filled = o.season(ahead), ahead
			}
			q = scaled(season.at(slot%g.slots, sub, g.sub, limit), m.scale)
			lastSlot, lastSub = slot, sub
		}
		out.Values[i] = q
		at += out.Step
	}
}

// scaled brings quantiles back to the scale of the samples. It keeps their order.
func scaled(q forecast.Quantiles, scale float64) forecast.Quantiles {
	for i, v := range q {
		q[i] = min(v*scale, forecast.MaxValue)
	}
	return q
}

// name returns the names of the candidates with the largest weights.
func (o *gate) name() string {
	middle := o.middles[heaviest(o.middleWeights)].name
	upper := "errors of the median"
	if c := heaviest(o.tailWeights); c < len(o.tails) {
		upper = o.tails[c].name
	}
	return "auto: " + middle + "; upper: " + upper
}

func heaviest(weights []float64) int {
	best := 0
	for i, w := range weights {
		if w > weights[best] {
			best = i
		}
	}
	return best
}

// reason returns what the history is too short for.
func (o *gate) reason(m *Model, newest int) string {
	g := o.banks.grid
	season := time.Duration(g.slots) * m.layout.unit
	seen := time.Duration(newest) * m.layout.unit
	shift := ""
	if newest < m.recent.count {
		shift = " since the level shifted"
	}
	switch {
	case g.fullRows() == 0:
		return fmt.Sprintf("level only: %s of history%s, %s needed for the time of day", forecast.Span(seen), shift, forecast.Span(season/2))
	case o.replays == 0:
		return fmt.Sprintf("candidates weigh alike: %s of history%s, %s needed to compare them", forecast.Span(seen), shift, forecast.Span(season*3/2))
	}
	return ""
}
