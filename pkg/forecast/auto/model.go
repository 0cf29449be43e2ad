// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auto is the default forecasting algorithm: it replays simple methods over the newest seasons of a series,
// weights them by their loss, and forecasts with the mixture.
package auto

import (
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// bufferSize bounds how many samples of the slot in progress are kept; at a finer step every second sample is dropped.
const bufferSize = 64

// Model is the state of one series: two weeks of slots. It is updated sample by sample and forecasts from its state, so
// an updated model and one that is fitted anew to the same samples are equal. It is not safe for concurrent use.
//
// Its values are relative to a positive sample, the first one or the first of another order of magnitude, so that forecasts do not depend on the
// unit.
type Model struct {
	layout layout
	step   time.Duration

	scale float64 // a positive sample, 0 before there is one

	head   int64 // index of the slot in progress: slots since the Unix epoch
	recent ring  // the slots before head, layout.capacity() at most

	buffer  []float32 // usable samples of the slot in progress, in order of time
	stride  int64     // one in stride samples is kept
	skipped int64

	until   int64 // Unix seconds at which the slot in progress ends
	last    int64 // time of the newest sample in Unix seconds; valid where started
	started bool
}

// NewModel returns an empty model of a series whose samples are a step apart.
func NewModel(step time.Duration) *Model {
	return &Model{layout: layoutFor(step), step: step, stride: 1}
}

// Step returns the step of the forecasts of the model.
func (m *Model) Step() time.Duration { return m.step }

// Observe adds a sample. Samples that are unusable (see forecast.Usable) only advance time; samples not newer than the
// newest are dropped. A gap longer than the history empties the model.
func (m *Model) Observe(at time.Time, value float64) { m.observe(at.Unix(), value) }

func (m *Model) observe(seconds int64, value float64) {
	if m.started && seconds <= m.last {
		return
	}

	if !m.started || seconds >= m.until {
		index := floorDiv(seconds, m.layout.seconds())
		if m.started {
			m.advance(index)
		} else {
			m.started = true
			m.recent.restart(index)
			m.enter(index)
		}
	}

	m.last = seconds
	if forecast.Usable(value) {
		m.keep(m.relative(value))
	}
}

// maxRelative is the largest sample relative to the scale. A history may begin with next to nothing, in which case the scale changes later.
const maxRelative = 1 << 40

// relative converts a sample to the scale of the model.
func (m *Model) relative(value float64) float32 {
	if m.scale == 0 {
		m.scale = value
	}

	if m.scale == 0 {
		return 0
	}

	if value/m.scale > maxRelative {
		factor := float32(m.scale / value)
		for i := range m.buffer {
			m.buffer[i] *= factor
		}

		m.recent.multiply(factor)
		m.scale = value
	}

	return float32(value / m.scale)
}

// enter sets the slot in progress.
func (m *Model) enter(index int64) {
	m.head = index
	m.until = (index + 1) * m.layout.seconds()
}

// keep adds a sample to the slot in progress, thinning the buffer where it is full.
func (m *Model) keep(v float32) {
	m.skipped++
	if m.skipped%m.stride != 0 {
		return
	}

	if len(m.buffer) == bufferSize {
		m.thin()
	}
	if m.buffer == nil {
		m.buffer = make([]float32, 0, bufferSize)
	}

	m.buffer = append(m.buffer, v)
}

// thin drops every second sample of the buffer.
func (m *Model) thin() {
	remaining := m.buffer[:0]
	for i := 0; i < len(m.buffer); i += 2 {
		remaining = append(remaining, m.buffer[i])
	}

	m.buffer = remaining
	m.stride *= 2
}

// advance closes the slot in progress and starts the one with the given index; slots between them are empty.
func (m *Model) advance(index int64) {
	if index-m.head > int64(m.layout.capacity()) {
		m.recent.restart(index)
		m.scale = 0
	} else {
		m.push(m.layout.summarize(m.buffer))
		for i := m.head + 1; i < index; i++ {
			m.push(emptySlot())
		}
	}

	m.buffer = m.buffer[:0]
	m.stride = 1
	m.skipped = 0
	m.enter(index)
}

func (m *Model) push(a atoms) { m.recent.push(a.pack(), m.layout.capacity()) }

// closed returns the model as a forecast uses it: with the slot in progress closed if the newest sample was its last,
// and the origin at the slot of the next step. The model itself is not changed.
func (m *Model) closed() *Model {
	// Times are whole seconds: a step that is none counts as the next longer one.
	step := int64((m.step + time.Second - 1) / time.Second)
	next := floorDiv(m.last+step, m.layout.seconds())
	if !m.started || next == m.head && (m.filled() || len(m.buffer) == 0) {
		return m
	}

	view := *m
	view.recent.cells = slices.Clone(m.recent.cells)
	view.buffer = slices.Clone(m.buffer)
	view.advance(max(next, m.head+1))

	return &view
}

// filled reports whether any whole slot has samples.
func (m *Model) filled() bool {
	for ago := 1; ago <= m.recent.count; ago++ {
		if !m.recent.at(m.head - int64(ago)).empty() {
			return true
		}
	}

	return false
}

// now returns the start of a forecast: one step after the newest sample.
func (m *Model) now() time.Time { return time.Unix(m.last, 0).UTC().Add(m.step) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}

	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

func isNaN(v float32) bool { return v != v }

func nan() float32 { return float32(math.NaN()) }

// Algorithm implements forecast.Algorithm by fitting a Model to the history.
type Algorithm struct {
	// Holidays are known holidays; the zero value has none.
	Holidays Calendar
}

// Name implements forecast.Algorithm.
func (Algorithm) Name() string { return "auto" }

// Forecast implements forecast.Algorithm.
func (a Algorithm) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}

	m := NewModel(history.Step)
	for i, v := range history.Values {
		m.observe(history.Time(i).Unix(), v)
	}

	return m.ForecastWith(a.Holidays, horizon)
}
