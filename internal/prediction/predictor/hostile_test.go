// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
)

// TestHostileSamples checks that forecasts are finite, ordered and not negative for any samples.
func TestHostileSamples(t *testing.T) {
	bad := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, 1e300, 2, 1e29, 0}
	for name, use := range map[string]func(string, time.Time) float64{
		"all kinds": func(_ string, at time.Time) float64 { n := at.Unix() / 60; return bad[(5*n+n/7)%8] },
		"zeros":     func(string, time.Time) float64 { return 0 },
		"constant":  func(string, time.Time) float64 { return 7 },
		"one spike": func(_ string, at time.Time) float64 {
			if at.Unix()%(3*86400) == 0 {
				return 1e12
			}

			return 1
		},
		"gaps of days": func(_ string, at time.Time) float64 {
			if at.Unix()/86400%3 != 0 {
				return series.Gap()
			}

			return 1
		},
		"nothing": func(string, time.Time) float64 { return math.NaN() },
	} {
		for _, algorithm := range []string{registry.Auto, registry.DSP, registry.Percentile} {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, &fakeSource{use: use}, nil)
				request := cpuOf("web")
				request.Algorithm = algorithm
				key := p.Set("a", []Request{request})[0].Key
				time.Sleep(10 * time.Minute)
				synctest.Wait()

				all, err := p.Forecast(key, 3*time.Hour)
				if s := p.Status(key); err != nil || (s.State == Empty) != (name == "nothing") || s.State == Ready && len(all) != 1 {
					t.Fatalf("%s: Status of %s = %+v with %d series, %v, want one series if it is Ready", name, algorithm, s, len(all), err)
				}

				for _, f := range all {
					for _, q := range f.Values {
						last := 0.0
						for _, v := range append(q[:], f.Published(q)) {
							if !forecast.Usable(v) {
								t.Fatalf("%s: %s forecasts %v, want usable values", name, algorithm, q)
							}
						}

						for _, v := range q {
							if v < last {
								t.Fatalf("%s: %s forecasts %v, want ascending quantiles", name, algorithm, q)
							}

							last = v
						}
					}
				}
			})
		}
	}
}

// TestClockGoesBack checks that samples are not added twice when the clock goes back.
func TestClockGoesBack(t *testing.T) {
	e := &entry{plan: func() plan { p, _ := newPlan(cpuOf("web"), nil); return p }()}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	feed := func(from time.Time, n int) {
		s := series.Series{Start: from, Step: time.Minute}
		for i := range n {
			s.Values = append(s.Values, dailyWave("", s.Time(i)))
		}
		e.addSamples([]metrics.LabeledSeries{{Series: s}}, s.End(), s.End(), 10, nil)
	}

	feed(now, 600)
	last := e.newest()
	feed(now.Add(-time.Hour), 120)

	if !e.newest().Equal(last) {
		t.Errorf("the newest sample went from %s to %s, want it to stay", last, e.newest())
	}

	feed(now.AddDate(10, 0, 0), 60)
	if all, err := e.forecast(now.AddDate(10, 0, 1), time.Hour, time.Hour); err != nil || len(all) != 1 {
		t.Errorf("forecast after a gap of ten years has %d series, %v, want 1", len(all), err)
	}
}

func FuzzRingCheckpoint(f *testing.F) {
	p, err := newPlan(Request{Query: cpuOf("web").Query, Algorithm: registry.Percentile}, nil)
	if err != nil {
		f.Fatal(err)
	}

	good := p.newModel()
	for i := range 100 {
		good.observe(time.Unix(int64(1_800_000_000+60*i), 0), float64(i))
	}

	data, err := good.marshal()
	if err != nil {
		f.Fatal(err)
	}

	f.Add(data)
	f.Add(data[:9])
	f.Add([]byte{})

	f.Fuzz(func(t *testing.T, data []byte) {
		m := p.newModel()
		if m.unmarshal(data) != nil {
			return
		}

		m.observe(time.Unix(1_900_000_000, 0), 1)
		fc, err := m.forecast(time.Hour)
		if err != nil {
			return
		}

		for _, q := range fc.Values {
			for _, v := range q {
				if !forecast.Usable(v) {
					t.Fatalf("Forecast has quantiles %v, want usable values", q)
				}
			}
		}
	})
}
