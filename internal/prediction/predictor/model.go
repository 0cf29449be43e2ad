// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
)

// model is the state of one series. Samples are added in time order.
type model interface {
	// observe adds a usable sample that is newer than all before.
	observe(at time.Time, value float64)
	// forecast returns the steps after the newest sample.
	forecast(horizon time.Duration) (forecast.Forecast, error)
	// samples returns the stored history, for algorithms that pool several series; empty for auto.
	samples() series.Series
	marshal() ([]byte, error)
	unmarshal([]byte) error
}

func (p plan) newModel() model {
	if p.name == registry.Auto {
		return &autoModel{step: p.step, model: auto.NewModel(p.step), calendar: p.calendar}
	}

	return &sampleRing{step: p.step, capacity: int(p.history / p.step), algorithm: p.algorithm}
}

// autoModel is a model of auto: 32 KiB, independent of the length of the history and of the step up to 5 minutes.
type autoModel struct {
	step     time.Duration
	model    *auto.Model
	calendar auto.Calendar
}

func (m *autoModel) observe(at time.Time, value float64) { m.model.Observe(at, value) }

func (m *autoModel) forecast(horizon time.Duration) (forecast.Forecast, error) {
	return m.model.ForecastWith(m.calendar, horizon)
}

func (m *autoModel) samples() series.Series { return series.Series{} }

func (m *autoModel) marshal() ([]byte, error) {
	return m.model.MarshalBinary()
}

func (m *autoModel) unmarshal(data []byte) error {
	loaded := auto.NewModel(m.step)
	if err := loaded.UnmarshalBinary(data); err != nil {
		return err
	}

	if loaded.Step() != m.step {
		return fmt.Errorf("its step is %s, not %s", loaded.Step(), m.step)
	}

	m.model = loaded
	return nil
}

// sampleRing keeps the newest samples for algorithms that need all of them: 4 bytes each, at most maxRing.
type sampleRing struct {
	step      time.Duration
	capacity  int
	algorithm forecast.Algorithm
	start     time.Time
	values    []float32
}

func (m *sampleRing) observe(at time.Time, value float64) {
	if len(m.values) == 0 {
		m.start = at
	}

	at = at.Truncate(m.step)
	if len(m.values) == 0 {
		m.start = at
	}

	index := int(at.Sub(m.start) / m.step)
	if index-len(m.values) >= m.capacity {
		m.start = at
		m.values = m.values[:0]
		index = 0
	}

	for len(m.values) < index {
		m.values = append(m.values, float32(math.NaN()))
	}

	m.values = append(m.values, float32(value))
	// Drop old samples in bulk, so that each sample is rarely moved.
	if extra := len(m.values) - m.capacity; extra > m.capacity/16 {
		m.values = m.values[:copy(m.values, m.values[extra:])]
		m.start = m.start.Add(time.Duration(extra) * m.step)
	}
}

func (m *sampleRing) samples() series.Series {
	from := max(0, len(m.values)-m.capacity)
	out := series.Series{Start: m.start.Add(time.Duration(from) * m.step), Step: m.step, Values: make([]float64, len(m.values)-from)}
	for i, v := range m.values[from:] {
		out.Values[i] = float64(v)
	}

	return out
}

func (m *sampleRing) forecast(horizon time.Duration) (forecast.Forecast, error) {
	return m.algorithm.Forecast(m.samples(), horizon)
}

func (m *sampleRing) marshal() ([]byte, error) {
	out := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+4*len(m.values)), uint64(m.start.Unix()))
	for _, v := range m.values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}

	return out, nil
}

var errSamples = errors.New("unusable checkpoint of samples")

func (m *sampleRing) unmarshal(data []byte) error {
	if len(data) < 8 || (len(data)-8)%4 != 0 || (len(data)-8)/4 > m.capacity+m.capacity/16+1 {
		return fmt.Errorf("%w: %d bytes", errSamples, len(data))
	}

	start := int64(binary.LittleEndian.Uint64(data))
	if start < -math.MaxInt32 || start > 1<<40 || start%int64(m.step/time.Second) != 0 {
		return fmt.Errorf("%w: it starts at %d", errSamples, start)
	}

	values := make([]float32, (len(data)-8)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[8+4*i:]))
		if v := float64(values[i]); !math.IsNaN(v) && !forecast.Usable(v) {
			return fmt.Errorf("%w: sample %d is %v", errSamples, i, v)
		}
	}

	m.start = time.Unix(start, 0).UTC()
	m.values = values
	return nil
}

// interleave merges the samples of several series into one, whose distribution is that of all samples.
func interleave(step time.Duration, all []series.Series) series.Series {
	all = all[:min(len(all), int(step/forecast.MinStep))]
	if len(all) == 1 {
		return all[0]
	}

	start := all[0].Start
	end := all[0].End()
	for _, s := range all[1:] {
		if s.Start.Before(start) {
			start = s.Start
		}
		if s.End().After(end) {
			end = s.End()
		}
	}

	n := len(all)
	cells := min(int(end.Sub(start)/step), forecast.MaxSamples/n)
	start = end.Add(-time.Duration(cells) * step)

	out := series.Series{Start: start, Step: step / time.Duration(n), Values: make([]float64, cells*n)}
	for i := range out.Values {
		out.Values[i] = series.Gap()
	}

	// Each cell has one place for each series, in a fixed order.
	for k, s := range all {
		shift := int(s.Start.Sub(start) / step)
		for i, v := range s.Values {
			if at := i + shift; at >= 0 && at < cells {
				out.Values[at*n+k] = v
			}
		}
	}

	return out
}
