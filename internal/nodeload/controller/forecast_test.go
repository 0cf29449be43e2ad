// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/units"
)

// fakePredictor has one series.
type fakePredictor struct {
	sets   int
	status predictor.Status
	series []predictor.SeriesForecast
	refuse string
}

func (m *fakePredictor) Set(_ string, requests []predictor.Request) []predictor.RequestResult {
	m.sets++
	out := make([]predictor.RequestResult, len(requests))
	for i, r := range requests {
		out[i].Key[0] = byte(i + 1)
		if r.Query.Target.Name == m.refuse {
			out[i].Err = errors.New("the limit is reached")
		}
	}

	return out
}

func (m *fakePredictor) Status(predictor.Key) predictor.Status { return m.status }

func (m *fakePredictor) Forecast(predictor.Key, time.Duration) ([]predictor.SeriesForecast, error) {
	return m.series, nil
}

// TestPeakOfTheComingHour checks that values before now and after the hour are ignored and that a stale forecast has
// no peak.
func TestPeakOfTheComingHour(t *testing.T) {
	f := predictor.SeriesForecast{Forecast: forecast.Forecast{Start: begin.Add(-10 * time.Minute), Step: 10 * time.Minute}}
	for _, v := range []float64{9, 1, 2, 5, 3, 1, 1, 8} { // 8 is at the end of the hour, which is excluded
		var q forecast.Quantiles
		for i := range q {
			q[i] = v
		}
		f.Values = append(f.Values, q)
	}

	m := &fakePredictor{status: predictor.Status{State: predictor.Ready}, series: []predictor.SeriesForecast{f}, refuse: "c"}
	p := NewPeaks(m, clocktesting.NewFakePassiveClock(begin))
	if _, ok := p.Peak("a", units.CPU); ok {
		t.Error("Peak before Request returned a value, want none")
	}

	resources := []units.Resource{units.CPU, units.CPU}
	p.Request([]string{"b", "a", "c"}, resources)
	p.Request([]string{"a", "b", "c"}, resources)

	if m.sets != 1 {
		t.Errorf("Set was called %d times for equal requests, want once", m.sets)
	}
	if got, ok := p.Peak("a", units.CPU); !ok || got != 5 {
		t.Errorf("Peak(a, cpu) = %v, %v, want 5", got, ok)
	}
	if _, ok := p.Peak("c", units.CPU); ok {
		t.Error("Peak of a refused request returned a value, want none")
	}

	if _, ok := p.Peak("a", units.Memory); ok {
		t.Error("Peak of another resource returned a value, want none")
	}

	for _, status := range []predictor.Status{{State: predictor.Pending}, {State: predictor.Ready, Stale: true}} {
		m.status = status
		if _, ok := p.Peak("a", units.CPU); ok {
			t.Errorf("Peak with status %+v returned a value, want none", status)
		}
	}
}
