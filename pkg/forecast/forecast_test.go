// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"errors"
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

func TestCheck(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		values  []float64
		step    time.Duration
		horizon time.Duration
		want    error
		length  int
	}{
		"fine":             {[]float64{1, 2}, time.Minute, time.Hour, nil, 2},
		"one among gaps":   {[]float64{nan, 0, nan}, time.Minute, time.Hour, nil, 3},
		"empty":            {nil, time.Minute, time.Hour, ErrEmpty, 0},
		"all gaps":         {[]float64{nan, nan}, time.Minute, time.Hour, ErrEmpty, 0},
		"all unusable":     {[]float64{-1, math.Inf(1), 1e31}, time.Minute, time.Hour, ErrEmpty, 0},
		"no step":          {[]float64{1}, 0, time.Hour, ErrStep, 0},
		"tiny step":        {[]float64{1}, time.Millisecond, time.Hour, ErrStep, 0},
		"giant step":       {[]float64{1}, 25 * time.Hour, time.Hour, ErrStep, 0},
		"no horizon":       {[]float64{1}, time.Minute, 0, ErrHorizon, 0},
		"negative horizon": {[]float64{1}, time.Minute, -time.Hour, ErrHorizon, 0},
		"giant horizon":    {[]float64{1}, time.Second, math.MaxInt64, ErrHorizon, 0},
		"too long":         {make([]float64, MaxSamples+7), time.Minute, time.Hour, nil, MaxSamples},
	} {
		h := series.Series{Start: time.Unix(0, 0), Step: c.step, Values: c.values}
		got, err := Check(h, c.horizon)
		if !errors.Is(err, c.want) || len(got.Values) != c.length {
			t.Errorf("%s: %d values, error %v; want %d, %v", name, len(got.Values), err, c.length, c.want)
		}
		if err == nil && !got.End().Equal(h.End()) {
			t.Errorf("%s: ends at %s, want %s", name, got.End(), h.End())
		}
	}
}

func TestQuantiles(t *testing.T) {
	q := Quantiles{1, 2, 3, 4, 5}
	for level, want := range map[float64]float64{0: 1, 0.5: 1, 0.625: 1.5, 0.9: 3, 0.97: 4.5, 0.99: 5, 1: 5} {
		if got := q.At(level); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %v: %v, want %v", level, got, want)
		}
	}

	if got := q.At(math.NaN()); got != 1 {
		t.Errorf("Quantiles.At(NaN) = %v, want 1", got)
	}

	for name, c := range map[string]struct{ in, want Quantiles }{
		"falling":  {Quantiles{3, 2, 5, 1, 6}, Quantiles{3, 3, 5, 5, 6}},
		"unusable": {Quantiles{math.NaN(), -1, 2, math.Inf(1), 3}, Quantiles{0, 0, 2, 2, 3}},
		"constant": {Constant(7), Quantiles{7, 7, 7, 7, 7}},
	} {
		if got := c.in.Ordered(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestForecastAccess(t *testing.T) {
	start := time.Unix(1000, 0)
	f := Forecast{Start: start, Step: time.Minute, Values: []Quantiles{Constant(1), Constant(5), Constant(3)}}
	if q, ok := f.At(start.Add(90 * time.Second)); !ok || q[0] != 5 {
		t.Errorf("Forecast.At(90 s) = %v, %v; want 5, true", q, ok)
	}

	for _, at := range []time.Time{start.Add(-1), f.End()} {
		if _, ok := f.At(at); ok {
			t.Errorf("Forecast.At(%s) has a value, want none outside of the horizon", at)
		}
	}

	for name, c := range map[string]struct {
		from, to time.Duration
		want     float64
		ok       bool
	}{
		"all": {0, time.Hour, 5, true}, "the last": {2 * time.Minute, 3 * time.Minute, 3, true},
		"before": {-time.Hour, time.Minute, 1, true}, "after": {time.Hour, 2 * time.Hour, 0, false},
		"nothing": {time.Minute, time.Minute, 0, false},
	} {
		if got, ok := f.Max(0.95, start.Add(c.from), start.Add(c.to)); got != c.want || ok != c.ok {
			t.Errorf("max of %s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}

	if s := f.Quantile(0.9); len(s.Values) != 3 || s.Values[1] != 5 || !s.Start.Equal(start) {
		t.Errorf("Quantile(0.9) = %v, want 1, 5, 3 from %s", s, start)
	}
	if _, ok := (Forecast{}).At(start); ok {
		t.Error("At of an empty forecast has a value, want none")
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		48 * time.Hour: "48h", 3 * time.Minute: "3m", 90 * time.Minute: "1h30m", 30 * time.Second: "30s", 0: "0s", time.Hour + time.Second: "1h0m1s",
		10 * time.Minute: "10m", 10 * time.Hour: "10h",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %q, want %q", int64(d), got, want)
		}
	}
}
