// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// sealed gives data a valid checksum, so that fuzzing reaches what lies behind it.
func sealed(data []byte) []byte {
	if len(data) < 4 {
		return data
	}

	out := append([]byte(nil), data...)
	binary.LittleEndian.PutUint32(out[len(out)-4:], crc32.ChecksumIEEE(out[:len(out)-4]))
	return out
}

// checkForecast fails where a forecast breaks what every forecast promises.
func checkForecast(t *testing.T, f forecast.Forecast) {
	t.Helper()

	for i, q := range f.Values {
		last := 0.0
		for l, v := range q {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < last {
				t.Fatalf("step %d level %d: %v in %v, want finite ascending values", i, l, v, q)
			}

			last = v
		}
	}
}

var monday = time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC)

func constant(n int, v float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}

	return out
}

func TestHostileInput(t *testing.T) {
	spike := constant(3000, 1)
	spike[1500] = 1e29

	mixed := constant(3000, 2)
	for i := range mixed {
		mixed[i] = []float64{2, math.NaN(), -1, math.Inf(1), math.Inf(-1), 1e300}[i%6]
	}

	for name, c := range map[string]struct {
		values []float64
		step   time.Duration
		want   error
		limit  float64 // no forecast may exceed it
	}{
		"empty":          {nil, time.Minute, forecast.ErrEmpty, 0},
		"no step":        {constant(5, 1), 0, forecast.ErrStep, 0},
		"all NaN":        {constant(5000, math.NaN()), time.Minute, forecast.ErrEmpty, 0},
		"all negative":   {constant(5000, -1), time.Minute, forecast.ErrEmpty, 0},
		"one sample":     {[]float64{3}, time.Minute, nil, 3},
		"two samples":    {[]float64{3, 4}, time.Minute, nil, 8},
		"all equal":      {constant(9000, 0.1), time.Minute, nil, 0.1000001},
		"all zero":       {constant(9000, 0), time.Minute, nil, 0},
		"one huge spike": {spike, time.Minute, nil, 2e29},
		"mostly unusable": {
			mixed, time.Minute, nil, 2.000001,
		},
		"hours":                {constant(800, 5), time.Hour, nil, 5.000001},
		"days":                 {constant(40, 5), day, nil, 5.000001},
		"15 s":                 {constant(50000, 5), 15 * time.Second, nil, 5.000001},
		"an odd step":          {constant(5000, 5), 7*time.Minute + 13*time.Second, nil, 5.000001},
		"newest days missing":  {append(constant(5000, 5), constant(4000, math.NaN())...), time.Minute, nil, 5.000001},
		"a gap of 15 days":     {append(append(constant(5000, 9), constant(21600, math.NaN())...), 1), time.Minute, nil, 1.000001},
		"5 million samples":    {constant(5_000_000, 5), time.Minute, nil, 5.000001},
		"every value once NaN": {append([]float64{math.NaN()}, constant(3000, 7)...), time.Minute, nil, 7.000001},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (Algorithm{}).Forecast(series.Series{Start: monday, Step: c.step, Values: c.values}, day)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}

			checkForecast(t, got)
			if len(got.Values) != forecast.Steps(day, c.step) {
				t.Errorf("%d steps, want %d", len(got.Values), forecast.Steps(day, c.step))
			}

			for _, q := range got.Values {
				if q[forecast.NumLevels-1] > c.limit {
					t.Fatalf("%v, want at most %v", q, c.limit)
				}
			}
		})
	}
}

func TestShortHistorySaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		hours  int
		reason bool
	}{"an hour": {1, true}, "eleven hours": {11, true}, "a day": {24, true}, "two days": {48, false}, "a week": {168, false}} {
		h := history(t, "daily")
		h.Values = h.Values[:c.hours*60]
		got, err := (Algorithm{}).Forecast(h, day)
		if err != nil {
			t.Fatalf("%s: Forecast: %v, want no error", name, err)
		}

		if (got.Reason != "") != c.reason {
			t.Errorf("%s: reason %q, want one: %t", name, got.Reason, c.reason)
		}
	}
}

// TestScaleFree multiplies a history by powers of two and of ten.
func TestScaleFree(t *testing.T) {
	for _, f := range families.All() {
		h := f.Make(5, 10, 5*time.Minute)
		want, err := (Algorithm{}).Forecast(h, day)
		if err != nil {
			t.Fatal(err)
		}

		for _, scale := range []float64{1 << 20, 1e6, 1e-6} {
			scaled := series.Series{Start: h.Start, Step: h.Step}
			for _, v := range h.Values {
				scaled.Values = append(scaled.Values, v*scale)
			}

			got, err := (Algorithm{}).Forecast(scaled, day)
			if err != nil {
				t.Fatal(err)
			}

			for i := range got.Values {
				for l, v := range got.Values[i] {
					if w := want.Values[i][l] * scale; math.Abs(v-w) > 1e-4*w {
						t.Fatalf("%s by %v: step %d level %d: %v, want %v", f.Name, scale, i, l, v, w)
					}
				}
			}
		}
	}
}

// TestShiftInTime moves a history by whole weeks.
func TestShiftInTime(t *testing.T) {
	h := history(t, "holiday")
	want, err := (Algorithm{}).Forecast(h, day)
	if err != nil {
		t.Fatal(err)
	}

	h.Start = h.Start.AddDate(0, 0, 7*31)
	got, err := (Algorithm{}).Forecast(h, day)
	if err != nil {
		t.Fatal(err)
	}

	if !got.Start.Equal(want.Start.AddDate(0, 0, 7*31)) {
		t.Errorf("Start = %s, want 31 weeks after %s", got.Start, want.Start)
	}
	if !reflect.DeepEqual(got.Values, want.Values) {
		t.Error("Forecast of a history moved by weeks differs, want the same values")
	}
}

func TestDeterministic(t *testing.T) {
	h := history(t, "random walk")
	first, _ := (Algorithm{}).Forecast(h, 3*day)
	for range 5 {
		if again, _ := (Algorithm{}).Forecast(h, 3*day); !reflect.DeepEqual(first, again) {
			t.Fatal("Forecast of one history differs, want the same twice")
		}
	}
}

// TestLevelShift checks that the forecast is near the new level a day after a jump by 50.
func TestLevelShift(t *testing.T) {
	h := history(t, "near constant")
	cut := len(h.Values) - 36*60
	for i := range h.Values[cut:] {
		h.Values[cut+i] *= 50
	}

	got, err := (Algorithm{}).Forecast(h, day)
	if err != nil {
		t.Fatal(err)
	}

	for i, q := range got.Values {
		if q[0] < 0.1 || q[0] > 0.25 || q[3] < 0.17 || q[3] > 0.5 {
			t.Fatalf("step %d: %v, want 0.1 to 0.2", i, q)
		}
	}
}

func FuzzForecast(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, uint8(1), uint16(60))
	f.Add([]byte{0, 0, 0, 255, 254, 253, 9}, uint8(60), uint16(24*60))
	f.Add([]byte("a pattern that repeats, a pattern that repeats"), uint8(15), uint16(10))

	f.Fuzz(func(t *testing.T, raw []byte, stepMinutes uint8, horizonMinutes uint16) {
		if len(raw) == 0 {
			return
		}

		values := make([]float64, min(6000, 300*len(raw)))
		for i := range values {
			switch b := raw[(i*7+i/len(raw))%len(raw)]; b {
			case 255:
				values[i] = math.NaN()
			case 254:
				values[i] = math.Inf(1)
			case 253:
				values[i] = -5
			case 252:
				values[i] = 1e29
			default:
				values[i] = float64(b) * math.Pow(10, float64(int(raw[0])%40-20))
			}
		}

		h := series.Series{Start: monday, Step: time.Duration(stepMinutes) * time.Minute, Values: values}
		got, err := (Algorithm{}).Forecast(h, time.Duration(horizonMinutes)*time.Minute)
		if err != nil {
			return
		}

		checkForecast(t, got)
	})
}
