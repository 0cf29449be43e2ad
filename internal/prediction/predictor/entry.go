// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling/forecastvalue"
	"crane.io/crane/pkg/series"
)

// entry is one request and the state of its series.
type entry struct {
	plan plan

	// Guarded by Predictor.mu.
	callers  map[string]struct{}
	due      time.Time
	running  bool
	failures int
	phase    phase
	models   int
	// read is the end of what was read; the next read begins there.
	read time.Time

	// mu guards what follows. Neither of the two locks is taken while the other is held.
	mu     sync.Mutex
	tracks map[string]*labelled
	until  time.Time // as read
	// answered is when the source last answered; zero before the first time.
	answered time.Time
	err      error
	dropped  int // series beyond the limit in the last answer
	dirty    bool
	cache    cached
	// followers keep account of the series for callers that scale by it, where it is one.
	followers map[account]*forecastvalue.Evaluator
}

// phase says what has to be done for an entry next.
type phase int

const (
	toLoad  phase = iota // look for a checkpoint
	toFetch              // read the whole history
	live                 // read what is new
)

// labelled is a series of an entry.
type labelled struct {
	labels metrics.Labels
	track
}

// cached is a set of forecasts of an algorithm that is fitted anew each time.
type cached struct {
	made  time.Time
	until time.Time // they reach so far
	all   []SeriesForecast
}

const (
	// vanished is how much older than the newest sample of its query the newest sample of a series may be before the
	// series is taken for gone, and left out; forgotten is when its model goes as well.
	vanished, forgotten = 15 * time.Minute, 6 * time.Hour
	// lateness is how late samples may come and are read all the same.
	lateness = 10 * time.Minute
)

// feed takes an answer of the source that reaches to end, and returns how many series the entry has and where the next
// read has to begin.
func (e *entry) feed(found []metrics.LabelledSeries, end, now time.Time, limits feedLimits) (int, time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropped = 0
	added := 0
	for _, f := range found {
		id := canonical(f.Labels)
		t := e.tracks[id]
		if t == nil {
			if !hasSample(f.Series) {
				continue
			}
			if len(e.tracks) >= limits.perEntry || added >= limits.total {
				e.dropped++
				continue
			}
			t = &labelled{labels: f.Labels, track: track{model: e.plan.newModel()}}
			if e.tracks == nil {
				e.tracks = map[string]*labelled{}
			}
			e.tracks[id] = t
			added++
		}
		for i, v := range f.Values {
			if at := f.Time(i); forecast.Usable(v) && at.After(t.last) {
				t.observe(at, v)
				if len(found) == 1 {
					e.follow(t, at, end.Add(-forecastvalue.HistoryLength), v)
				}
				e.dirty = true
			}
		}
	}
	e.until, e.answered, e.err = end, now, nil
	if next := e.newest().Add(e.plan.step); len(e.tracks) > 0 && next.Before(end) {
		e.until = next
		if earliest := end.Add(-lateness); e.until.Before(earliest) {
			e.until = earliest
		}
	}
	e.forget()
	return len(e.tracks), e.until
}

type feedLimits struct{ perEntry, total int }

func hasSample(s series.Series) bool { return slices.ContainsFunc(s.Values, forecast.Usable) }

// forget drops series that have been gone for long.
func (e *entry) forget() {
	newest := e.newest()
	maps.DeleteFunc(e.tracks, func(_ string, t *labelled) bool { return newest.Sub(t.last) > forgotten })
}

func (e *entry) newest() time.Time {
	var newest time.Time
	for _, t := range e.tracks {
		if t.last.After(newest) {
			newest = t.last
		}
	}
	return newest
}

// fail notes why reads fail: the first reason of a row, since the text of later ones may differ each time, and would make
// whoever reports it write each time.
func (e *entry) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
}

// status says how the entry stands at a time.
func (e *entry) status(now time.Time, c *Config) Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{State: Ready, Err: e.err, Answered: e.answered, Dropped: e.dropped, LastSample: e.newest()}
	switch {
	case len(e.tracks) > 0:
		s.Age = max(0, now.Sub(s.LastSample))
		s.Stale = s.Age > c.staleAge(e.plan.step)
	case e.err != nil:
		s.State = Failed
	case e.answered.IsZero():
		s.State = Pending
	default:
		s.State = Empty
	}
	for _, t := range e.tracks {
		if s.LastSample.Sub(t.last) <= vanished {
			s.Series++
		}
		if s.FirstSample.IsZero() || t.first.Before(s.FirstSample) {
			s.FirstSample = t.first
		}
	}
	return s
}

// forecast makes or reuses the forecasts of all series from now to the horizon.
func (e *entry) forecast(now time.Time, horizon, keep time.Duration) ([]SeriesForecast, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	until := now.Add(horizon)
	if !e.cache.until.Before(until) && now.Sub(e.cache.made) < keep && len(e.cache.all) > 0 {
		return slices.Clone(e.cache.all), nil
	}
	var all []SeriesForecast
	var err error
	if e.plan.aggregated {
		all, err = e.pooledForecast(until)
	} else {
		all, err = e.eachForecast(now, until)
	}
	if err != nil {
		return nil, fmt.Errorf("forecasting %s: %w", e.plan.query, err)
	}
	// A forecast from state takes a millisecond and as much memory as a fifth of the state: only what has to be fitted is
	// worth keeping.
	if e.plan.lasting() {
		e.cache = cached{made: now, until: until, all: all}
	}
	return slices.Clone(all), nil
}

func (e *entry) eachForecast(now, until time.Time) ([]SeriesForecast, error) {
	newest := e.newest()
	var all []SeriesForecast
	for _, id := range slices.Sorted(maps.Keys(e.tracks)) {
		t := e.tracks[id]
		if newest.Sub(t.last) > vanished {
			continue
		}
		horizon := until.Sub(t.last)
		if horizon > now.Sub(t.last)+forecast.MaxSteps*e.plan.step {
			return nil, forecast.ErrHorizon
		}
		f, err := t.model.forecast(horizon)
		if err != nil {
			return nil, err
		}
		one := SeriesForecast{Labels: t.labels, Forecast: f, LastSample: t.last, level: e.plan.level}
		if estimate, ok := e.plan.estimate(t.model.samples); ok {
			one.constant, one.isConstant = estimate, true
		}
		t.ledger.note(f, now)
		e.dirty = true
		all = append(all, one)
	}
	return all, nil
}

// pooledForecast makes one forecast of all series.
func (e *entry) pooledForecast(until time.Time) ([]SeriesForecast, error) {
	var parts []series.Series
	for _, id := range slices.Sorted(maps.Keys(e.tracks)) {
		parts = append(parts, e.tracks[id].model.samples())
	}
	if len(parts) == 0 {
		return nil, nil
	}
	whole := pooled(e.plan.step, parts)
	f, err := e.plan.algorithm.Forecast(whole, e.plan.step)
	if err != nil {
		return nil, err
	}
	// One distribution holds for the whole horizon, at the step of the series.
	last := e.newest()
	f.Start, f.Step = last.Add(e.plan.step), e.plan.step
	q := f.Values[0]
	f.Values = make([]forecast.Quantiles, forecast.Steps(until.Sub(last), f.Step))
	for i := range f.Values {
		f.Values[i] = q
	}
	one := SeriesForecast{Forecast: f, LastSample: last, level: e.plan.level}
	if estimate, ok := e.plan.estimate(func() series.Series { return whole }); ok {
		one.constant, one.isConstant = estimate, true
	}
	return []SeriesForecast{one}, nil
}

// estimate is the one value of algorithms that publish one: percentile.
func (p plan) estimate(history func() series.Series) (float64, bool) {
	estimator, ok := p.algorithm.(interface {
		Estimate(series.Series) (float64, error)
	})
	if !ok {
		return 0, false
	}
	v, err := estimator.Estimate(history())
	return v, err == nil && !math.IsNaN(v)
}

// lasting tells whether a forecast outlives new samples: refitting costs, and the user says how often.
func (p plan) lasting() bool { return p.name != autoName }

// canonical is a unique text of a label set.
func canonical(labels metrics.Labels) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(name) + "=" + strconv.Quote(labels[name]) + ",")
	}
	return b.String()
}
