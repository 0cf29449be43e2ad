// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/dsp"
	"crane.io/crane/pkg/forecast/percentile"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

const day = 24 * time.Hour

// checkForecast fails if a forecast violates the contract of forecast.Algorithm.
func checkForecast(t *testing.T, f forecast.Forecast, history series.Series, horizon time.Duration) {
	t.Helper()

	if len(f.Values) != forecast.Steps(horizon, history.Step) || !f.Start.Equal(history.End()) || f.Step != history.Step {
		t.Fatalf("forecast of %d steps of %s from %s, want %d of %s from %s", len(f.Values), f.Step, f.Start, forecast.Steps(horizon, history.Step), history.Step, history.End())
	}

	if f.Model == "" || math.IsInf(f.Skill, 0) {
		t.Fatalf("model %q, skill %v; want a name and no infinite skill", f.Model, f.Skill)
	}

	for i, q := range f.Values {
		last := 0.0
		for _, v := range q {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < last {
				t.Fatalf("step %d: %v, want finite ascending values", i, q)
			}

			last = v
		}
	}
}

// TestForecast_Contract checks the contract of forecast.Algorithm for every algorithm, on every family and on hostile input.
func TestForecast_Contract(t *testing.T) {
	bad := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, 1e300, 2, 1e29, 0}
	hostile := make([]float64, 3*288)
	for i := range hostile {
		hostile[i] = bad[(5*i+i/7)%len(bad)]
	}

	histories := map[string]series.Series{
		"one sample": {Start: time.Unix(0, 0), Step: time.Minute, Values: []float64{1}},
		"zeros":      {Start: time.Unix(0, 0), Step: time.Hour, Values: make([]float64, 500)},
		"hostile":    {Start: time.Unix(-1e6, 0), Step: 5 * time.Minute, Values: hostile},
	}

	for _, f := range families.All() {
		histories[f.Name] = f.Make(1, 15, 10*time.Minute)
	}

	for _, name := range Names() {
		algorithm, err := New(name, Options{})
		if err != nil || algorithm.Name() != name {
			t.Fatalf("New(%s): error %v, want an algorithm of that name", name, err)
		}

		for kind, history := range histories {
			got, err := algorithm.Forecast(history, 30*time.Hour)
			if name == GocraneDSP && errors.Is(err, forecast.ErrDeclined) {
				continue
			}
			if err != nil {
				t.Errorf("%s: %s: Forecast: %v, want no error", name, kind, err)
				continue
			}

			checkForecast(t, got, history, 30*time.Hour)
			if again, _ := algorithm.Forecast(history, 30*time.Hour); !reflect.DeepEqual(got.Values, again.Values) {
				t.Errorf("%s: %s: a second forecast of one history differs, want the same", name, kind)
			}
		}

		for kind, want := range map[*series.Series]error{
			{Step: time.Minute}: forecast.ErrEmpty,
			{Step: time.Minute, Values: []float64{math.NaN(), -1}}: forecast.ErrEmpty,
			{Values: []float64{1}}:                                 forecast.ErrStep,
		} {
			if _, err := algorithm.Forecast(*kind, day); !errors.Is(err, want) {
				t.Errorf("%s: %v: error %v, want %v", name, kind, err, want)
			}
		}

		if _, err := algorithm.Forecast(histories["one sample"], 0); !errors.Is(err, forecast.ErrHorizon) {
			t.Errorf("%s: Forecast(0): error %v, want ErrHorizon", name, err)
		}
	}
}

// TestScaleFree multiplies histories by a million. gocrane's method has units in it and is left out.
func TestScaleFree(t *testing.T) {
	for _, name := range []string{Auto, DSP, Percentile, Plain, SeasonalNaive} {
		algorithm, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range families.All() {
			history := f.Make(9, 14, 10*time.Minute)
			want, err := algorithm.Forecast(history, day)
			if err != nil {
				t.Fatal(err)
			}

			for i := range history.Values {
				history.Values[i] *= 1e6
			}

			got, err := algorithm.Forecast(history, day)
			if err != nil {
				t.Fatal(err)
			}

			for i := range got.Values {
				for l := range got.Values[i] {
					if g, w := got.Values[i][l], 1e6*want.Values[i][l]; math.Abs(g-w) > 1e-4*math.Abs(w)+1e-9 {
						t.Fatalf("%s: %s: step %d: %v, want %v", name, f.Name, i, g, w)
					}
				}
			}
		}
	}
}

func TestDSPUsesAnyPeriodAndSaysWhenThereIsNone(t *testing.T) {
	algorithm, err := New(DSP, Options{})
	if err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]time.Duration{
		"daily": day, "every 6 hours": 6 * time.Hour, "every 36 hours": 36 * time.Hour, "near constant": 0, "heavy tail": 0,
	} {
		for _, f := range families.All() {
			if f.Name != name {
				continue
			}

			got, err := algorithm.Forecast(f.Make(2, 14, time.Minute), day)
			if err != nil {
				t.Fatal(err)
			}

			if d := got.Period - want; d.Abs() > want/100 {
				t.Errorf("%s: period %s, want %s", name, got.Period, want)
			}
			if fell := strings.HasPrefix(got.Reason, "dsp fell back to percentile: "); fell != (want == 0) {
				t.Errorf("%s: reason %q, want a fallback: %t", name, got.Reason, want == 0)
			}
		}
	}

	short := series.Series{Start: time.Unix(0, 0), Step: time.Minute, Values: make([]float64, 180)}
	got, err := algorithm.Forecast(short, day)
	if want := "dsp fell back to percentile: history 3h of 48h needed"; err != nil || got.Reason != want {
		t.Errorf("reason %q, %v; want %q", got.Reason, err, want)
	}
}

// TestDSPKeepsTheAmplitude: gocrane's filter halves a slow wave that is weak.
func TestDSPKeepsTheAmplitude(t *testing.T) {
	algorithm, err := New(DSP, Options{DSP: dsp.Options{FFT: []dsp.FFTOptions{{}}}})
	if err != nil {
		t.Fatal(err)
	}

	history := series.Series{Start: time.Unix(0, 0), Step: time.Minute, Values: make([]float64, 14*1440)}
	for i := range history.Values {
		history.Values[i] = 1 + 0.4*math.Sin(2*math.Pi*float64(i)/1440)
	}

	got, err := algorithm.Forecast(history, day)
	if err != nil {
		t.Fatal(err)
	}

	for i, q := range got.Values {
		if want := 1 + 0.4*math.Sin(2*math.Pi*float64(i)/1440); math.Abs(q[0]-want) > 0.01 {
			t.Fatalf("minute %d of a period of %s: %v, want %v", i, got.Period, q[0], want)
		}
	}
}

func TestPercentileDecays(t *testing.T) {
	history := series.Series{Start: time.Unix(0, 0), Step: time.Minute, Values: make([]float64, 7*1440)}
	for i := range history.Values {
		history.Values[i] = 100
		if i >= 6*1440 {
			history.Values[i] = 10
		}
	}

	estimate := func(o percentile.Options) float64 {
		t.Helper()

		a, err := percentile.New(o)
		if err != nil {
			t.Fatal(err)
		}

		v, err := a.Estimate(history)
		if err != nil {
			t.Fatal(err)
		}

		return v
	}

	for _, c := range []struct {
		name string
		o    percentile.Options
		want float64
	}{
		{"the default forgets in days", percentile.Options{Percentile: "0.5"}, 10},
		{"a long half-life forgets nothing", percentile.Options{Percentile: "0.5", Histogram: percentile.Histogram{HalfLife: "300d"}}, 100},
		{"margin and target", percentile.Options{Percentile: "0.5", MarginFraction: "0.5", TargetUtilization: "0.5"}, 30},
		{"buckets round up", percentile.Options{Percentile: "0.5", Histogram: percentile.Histogram{MaxValue: "1", BucketSize: "4"}}, 12},
		{"growing buckets", percentile.Options{
			Percentile: "0.5", Histogram: percentile.Histogram{MaxValue: "1", FirstBucketSize: "2", BucketSizeGrowthRatio: "1"},
		}, 14},
	} {
		if got := estimate(c.o); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestBadOptions(t *testing.T) {
	count := func(v int32) *int32 { return &v }
	for name, c := range map[string]struct {
		algorithm string
		o         Options
		want      []string
	}{
		"unknown":  {"best", Options{}, []string{`"best"`, Auto, Percentile}},
		"duration": {DSP, Options{DSP: dsp.Options{SampleInterval: "a minute"}}, []string{"sampleInterval", `"a minute"`}},
		"too long": {DSP, Options{DSP: dsp.Options{SampleInterval: "2h"}}, []string{"sampleInterval", `"2h"`, "1h"}},
		"short":    {DSP, Options{DSP: dsp.Options{HistoryLength: "1d"}}, []string{"historyLength", `"1d"`, "2d"}},
		"items": {DSP, Options{DSP: dsp.Options{FFT: []dsp.FFTOptions{{
			MinNumOfSpectrumItems: count(9), MaxNumOfSpectrumItems: count(3),
		}}}}, []string{"estimators.fft[0].minNumOfSpectrumItems", "at most"}},
		"several": {
			Percentile,
			Options{Percentile: percentile.Options{Percentile: "99", MarginFraction: "-1", TargetUtilization: "NaN"}},
			[]string{"percentile", `"99"`, "marginFraction", `"-1"`, "targetUtilization", `"NaN"`},
		},
		"no maximum": {
			Percentile,
			Options{Percentile: percentile.Options{Histogram: percentile.Histogram{BucketSize: "1"}}},
			[]string{"histogram.maxValue"},
		},
		"half a pair": {
			Percentile,
			Options{Percentile: percentile.Options{Histogram: percentile.Histogram{MaxValue: "9", FirstBucketSize: "1"}}},
			[]string{"histogram.firstBucketSize", "bucketSizeGrowthRatio"},
		},
	} {
		_, err := New(c.algorithm, c.o)
		if err == nil {
			t.Errorf("%s: New succeeded, want an error", name)
			continue
		}

		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, err, want)
			}
		}
	}
}

func FuzzOptions(f *testing.F) {
	f.Add("60s", "15d", "0.1", "1e-3", int32(3), int32(100))
	f.Add("", "", "", "5%", int32(0), int32(0))
	f.Add("-1s", "1d1d", "Inf", "%", int32(-1), int32(1<<30))

	f.Fuzz(func(t *testing.T, interval, length, margin, amplitude string, fewest, most int32) {
		o := Options{
			DSP: dsp.Options{SampleInterval: interval, HistoryLength: length, FFT: []dsp.FFTOptions{{
				MarginFraction: margin, LowAmplitudeThreshold: amplitude, HighFrequencyThreshold: margin,
				MinNumOfSpectrumItems: &fewest, MaxNumOfSpectrumItems: &most,
			}}},
			Percentile: percentile.Options{
				SampleInterval: interval, HistoryLength: length, MarginFraction: margin, Percentile: amplitude,
				Histogram: percentile.Histogram{MaxValue: amplitude, BucketSize: margin, HalfLife: interval},
			},
		}

		history := series.Series{Start: time.Unix(0, 0), Step: 10 * time.Minute, Values: make([]float64, 432)}
		for i := range history.Values {
			history.Values[i] = 2 + math.Sin(float64(i)/144*2*math.Pi)
		}

		for _, name := range []string{DSP, Percentile} {
			algorithm, err := New(name, o)
			if err != nil {
				continue
			}

			got, err := algorithm.Forecast(history, 3*time.Hour)
			if err != nil {
				t.Fatal(err)
			}

			checkForecast(t, got, history, 3*time.Hour)
		}
	})
}
