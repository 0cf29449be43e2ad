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

	// The fields up to mu are guarded by Predictor.mu.
	callers map[string]string // namespaces by caller
	// owner is the first of these namespaces, and isShared is set if there are several. Each search of all entries reads them.
	owner    string
	isShared bool
	due      time.Time
	running  bool
	failures int
	// failed is the time of the last failure of a row; zero after an answer.
	failed time.Time
	phase  phase
	models int
	// read is the end of the last read; the next one starts there.
	read time.Time

	// mu guards the fields below. mu and Predictor.mu are never held together.
	mu     sync.Mutex
	tracks map[string]*labeled
	until  time.Time // end of the range read
	// answered is the time of the last answer of the source; zero before the first.
	answered time.Time
	err      error
	dropped  int // series beyond the limit in the last answer
	unusable int // series in the last answer with series that have samples, and none of them usable
	dirty    bool
	cache    forecastCache
	// evaluators compute the value of forecasts for callers that scale by them, if the entry has a single series.
	evaluators map[evaluatorKey]*forecastvalue.Evaluator
}

// phase is the next step for an entry.
type phase int

const (
	toLoad  phase = iota // read the checkpoint
	toFetch              // read the whole history
	live                 // read new samples
)

// labeled is a series of an entry.
type labeled struct {
	labels metrics.Labels
	seriesState
}

// forecastCache holds forecasts of an algorithm that is refitted for each forecast.
type forecastCache struct {
	computedAt time.Time
	until      time.Time // end of the forecasts
	all        []SeriesForecast
}

const (
	// minGoneAfter is the least lag of a series behind the newest sample of its query from which it is left out of forecasts, see goneAfter;
	// after deleteAfter its model is deleted as well.
	minGoneAfter = 15 * time.Minute
	deleteAfter  = 6 * time.Hour
	// maxLateness is how late samples may arrive and still be read.
	maxLateness = 10 * time.Minute
)

// goneAfter returns the lag of a series from which it is left out of forecasts: one sample may be missing.
func (e *entry) goneAfter() time.Duration { return max(minGoneAfter, 2*e.plan.step) }

// addSamples adds an answer of the source that ends at end. Further series are dropped if there are maxSeries. It returns the number of
// series of the entry and the start of the next read.
func (e *entry) addSamples(found []metrics.LabeledSeries, end, now time.Time, maxSeries int, price func(caller string) float64) (int, time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.dropped = 0
	if len(found) > 0 {
		e.unusable = 0
	}

	for _, f := range found {
		id := labelKey(f.Labels)
		t := e.tracks[id]
		if t == nil {
			if !hasSample(f.Series) {
				if hasUnusableSample(f.Series) {
					e.unusable++
				}

				continue
			}

			if len(e.tracks) >= maxSeries {
				e.dropped++
				continue
			}

			t = &labeled{labels: f.Labels, seriesState: seriesState{model: e.plan.newModel()}}
			if e.tracks == nil {
				e.tracks = map[string]*labeled{}
			}

			e.tracks[id] = t
		}

		for i, v := range f.Values {
			if at := f.Time(i); forecast.Usable(v) && at.After(t.last) {
				t.observe(at, v)
				if len(found) == 1 {
					e.updateEvaluators(t, at, end.Add(-forecastvalue.HistoryLength), v, price)
				}

				e.dirty = true
			}
		}
	}

	// The next read begins after the newest sample, so that late ones are read too, but at most maxLateness before this end.
	e.until = end
	e.answered = now
	e.err = nil
	if next := e.newest().Add(e.plan.step); len(e.tracks) > 0 && next.Before(end) {
		e.until = next
		if earliest := end.Add(-maxLateness); e.until.Before(earliest) {
			e.until = earliest
		}
	}

	e.dropGoneSeries()
	return len(e.tracks), e.until
}

func hasSample(s series.Series) bool { return slices.ContainsFunc(s.Values, forecast.Usable) }

func hasUnusableSample(s series.Series) bool {
	return slices.ContainsFunc(s.Values, func(v float64) bool { return !series.IsGap(v) && !forecast.Usable(v) })
}

// dropGoneSeries deletes series without samples for deleteAfter.
func (e *entry) dropGoneSeries() {
	newest := e.newest()
	maps.DeleteFunc(e.tracks, func(_ string, t *labeled) bool { return newest.Sub(t.last) > deleteAfter })
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

// recordError stores the first error of a row of failures. Later errors may differ in their text only, and would
// cause a status write each.
func (e *entry) recordError(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.err == nil {
		e.err = err
	}
}

// status returns the state of the entry at a time.
func (e *entry) status(now time.Time, c *Config) Status {
	e.mu.Lock()
	defer e.mu.Unlock()

	s := Status{
		State:      Ready,
		Step:       e.plan.step,
		Err:        e.err,
		Answered:   e.answered,
		Dropped:    e.dropped,
		LastSample: e.newest(),
	}

	// Models that exist are Ready whatever the last read returned.
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
		s.Unusable = e.unusable
	}

	for _, t := range e.tracks {
		if s.LastSample.Sub(t.last) <= e.goneAfter() {
			s.Series++
		}
		if s.FirstSample.IsZero() || t.first.Before(s.FirstSample) {
			s.FirstSample = t.first
		}
	}

	return s
}

// forecast computes or reuses the forecasts of all series from now to the horizon.
func (e *entry) forecast(now time.Time, horizon, keep time.Duration) ([]SeriesForecast, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	until := now.Add(horizon)
	if !e.cache.until.Before(until) && now.Sub(e.cache.computedAt) < keep && len(e.cache.all) > 0 {
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

	// A forecast from model state takes a millisecond and a fifth of the memory of the state, so only forecasts that
	// need a fit are cached.
	if e.plan.isCacheable() {
		e.cache = forecastCache{}
		if sizeOf(all) <= maxCacheBytes {
			e.cache = forecastCache{computedAt: now, until: until, all: all}
		}
	}

	return slices.Clone(all), nil
}

// sizeOf returns the memory of forecasts in bytes.
func sizeOf(all []SeriesForecast) int64 {
	size := int64(0)
	for _, f := range all {
		size += int64(len(f.Values)) * 8 * forecast.NumLevels
	}

	return size
}

func (e *entry) eachForecast(now, until time.Time) ([]SeriesForecast, error) {
	newest := e.newest()
	var all []SeriesForecast
	for _, id := range slices.Sorted(maps.Keys(e.tracks)) {
		t := e.tracks[id]
		if newest.Sub(t.last) > e.goneAfter() {
			continue
		}

		// A series that lags is forecast from its own last sample, up to the common end.
		horizon := until.Sub(t.last)
		if horizon > now.Sub(t.last)+forecast.MaxSteps*e.plan.step {
			return nil, forecast.ErrHorizon
		}

		f, err := t.model.forecast(horizon)
		if err != nil {
			return nil, err
		}

		result := SeriesForecast{
			Labels:     t.labels,
			Forecast:   f,
			LastSample: t.last,
			level:      e.plan.level,
		}

		if estimate, ok := e.plan.estimate(t.model.samples); ok {
			result.constant = estimate
			result.isConstant = true
		}

		t.ledger.record(f, now)
		e.dirty = true
		all = append(all, result)
	}

	return all, nil
}

// pooledForecast computes one forecast of the pooled samples of all series.
func (e *entry) pooledForecast(until time.Time) ([]SeriesForecast, error) {
	var parts []series.Series
	for _, id := range slices.Sorted(maps.Keys(e.tracks)) {
		parts = append(parts, e.tracks[id].model.samples())
	}

	if len(parts) == 0 {
		return nil, nil
	}

	pooled := interleave(e.plan.step, parts)
	f, err := e.plan.algorithm.Forecast(pooled, e.plan.step)
	if err != nil {
		return nil, err
	}

	// One distribution holds for the whole horizon, at the step of the series.
	last := e.newest()
	f.Start = last.Add(e.plan.step)

	f.Step = e.plan.step
	q := f.Values[0]
	f.Values = make([]forecast.Quantiles, forecast.Steps(until.Sub(last), f.Step))
	for i := range f.Values {
		f.Values[i] = q
	}

	result := SeriesForecast{Forecast: f, LastSample: last, level: e.plan.level}
	if estimate, ok := e.plan.estimate(func() series.Series { return pooled }); ok {
		result.constant = estimate
		result.isConstant = true
	}

	return []SeriesForecast{result}, nil
}

// estimate returns the single value of algorithms that publish one (percentile).
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

// isCacheable reports whether a forecast stays valid when new samples arrive: refitting is expensive, and ModelUpdate
// sets its interval.
func (p plan) isCacheable() bool { return p.name != autoName }

// labelKey returns a unique text for a label set.
func labelKey(labels metrics.Labels) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(name) + "=" + strconv.Quote(labels[name]) + ",")
	}

	return b.String()
}
