// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// point is [time, "value"] as in Prometheus: seconds since 1970 and a text.
type point struct {
	at    time.Time
	value float64
}

// MarshalJSON implements json.Marshaler.
func (p point) MarshalJSON() ([]byte, error) {
	seconds := float64(p.at.UnixMilli()) / 1000
	return json.Marshal([]any{seconds, strconv.FormatFloat(p.value, 'f', -1, 64)})
}

// vectorSample and matrixSeries are the elements of Prometheus' vector and matrix.
type vectorSample struct {
	Metric metrics.Labels `json:"metric"`
	Value  point          `json:"value"`
}

type matrixSeries struct {
	Metric metrics.Labels `json:"metric"`
	Values []point        `json:"values"`
}

// query answers ?query=&time= with a vector, without samples that are NaN.
func (a *API) query(w http.ResponseWriter, r *http.Request) error {
	text, err := parameter(r, "query")
	if err != nil {
		return err
	}

	at, err := seconds(r, "time")
	if err != nil {
		return err
	}

	samples, err := a.config.Queries.Instant(r.Context(), text, at)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}

	out := make([]vectorSample, len(samples))
	for i, s := range samples {
		out[i] = vectorSample{s.Labels, point{s.Time, s.Value}}
	}

	return writeData(w, out)
}

// queryRange answers ?query=&start=&end=&step= with a matrix. As in Prometheus the end is inclusive.
func (a *API) queryRange(w http.ResponseWriter, r *http.Request) error {
	text, err := parameter(r, "query")
	if err != nil {
		return err
	}

	window, err := a.window(r)
	if err != nil {
		return err
	}

	list, err := a.config.Queries.Range(r.Context(), text, window)
	if err != nil {
		return fmt.Errorf("query_range: %w", err)
	}

	out := make([]matrixSeries, len(list))
	for i, s := range list {
		out[i] = matrixSeries{Metric: s.Labels, Values: points(s.Series)}
	}

	return writeData(w, out)
}

// points returns the points of a series that are not NaN.
func points(s series.Series) []point {
	out := []point{}
	for i, v := range s.Values {
		if !series.IsGap(v) {
			out = append(out, point{s.Time(i), v})
		}
	}

	return out
}

func (a *API) window(r *http.Request) (metrics.Window, error) {
	start, err := seconds(r, "start")
	if err != nil {
		return metrics.Window{}, err
	}

	end, err := seconds(r, "end")
	if err != nil {
		return metrics.Window{}, err
	}

	text, err := parameter(r, "step")
	if err != nil {
		return metrics.Window{}, err
	}

	step, err := time.ParseDuration(text)
	if err != nil {
		return metrics.Window{}, fmt.Errorf("step: %q is not a duration such as 60s or 5m", text)
	}

	// The API bounds the number of points, and rejects what Prometheus would reject.
	switch {
	case step < time.Second:
		return metrics.Window{}, fmt.Errorf("step: %s is less than 1s", step)
	case end.Before(start):
		return metrics.Window{}, errors.New("end is before start")
	case end.Sub(start)/step >= time.Duration(a.config.MaxPoints):
		return metrics.Window{}, fmt.Errorf("from start to end are %d steps, more than %d", end.Sub(start)/step, a.config.MaxPoints)
	}

	return metrics.Window{Start: start, End: end.Add(step), Step: step}, nil
}

func parameter(r *http.Request, name string) (string, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return "", fmt.Errorf("%s is not given", name)
	}

	return text, nil
}

// seconds parses seconds since 1970, with or without a fraction, between the years 1970 and 2200.
func seconds(r *http.Request, name string) (time.Time, error) {
	text, err := parameter(r, name)
	if err != nil {
		return time.Time{}, err
	}

	const farthest = 230 * 365 * 24 * 3600
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > farthest {
		return time.Time{}, fmt.Errorf("%s: %q is not a time in seconds since 1970", name, text)
	}

	return time.UnixMilli(int64(math.Round(n * 1000))).UTC(), nil
}
