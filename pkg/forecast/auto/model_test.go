// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// fit feeds a history to a new model.
func fit(h series.Series) *Model {
	m := NewModel(h.Step)
	for i, v := range h.Values {
		m.Observe(h.Time(i), v)
	}

	return m
}

func TestUpdateEqualsRefit(t *testing.T) {
	h := history(t, "weekday and weekend")
	cut := len(h.Values) - 1000

	m := fit(series.Series{Start: h.Start, Step: h.Step, Values: h.Values[:cut]})
	if _, err := m.Forecast(day); err != nil { // forecasting changes nothing
		t.Fatal(err)
	}

	for i := cut; i < len(h.Values); i++ {
		m.Observe(h.Time(i), h.Values[i])
	}

	updated, err := m.Forecast(day)
	if err != nil {
		t.Fatal(err)
	}

	fresh, err := (Algorithm{}).Forecast(h, day)
	if err != nil {
		t.Fatal(err)
	}

	if !reflect.DeepEqual(updated, fresh) {
		t.Error("Forecast of an updated model differs, want that of a refit")
	}
}

func TestStateIsSmall(t *testing.T) {
	if MaxCheckpoint > 32<<10 {
		t.Errorf("MaxCheckpoint = %d bytes, want at most 32 KiB", MaxCheckpoint)
	}

	data, err := fit(history(t, "daily")).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}

	if len(data) > MaxCheckpoint {
		t.Errorf("MarshalBinary has %d bytes, want at most MaxCheckpoint, %d", len(data), MaxCheckpoint)
	}
}

func TestCheckpointRoundTrip(t *testing.T) {
	h := history(t, "bursts at irregular minutes")
	for _, length := range []int{0, 1, 7, 15, 16, 1000, 1001, 20000} {
		m := fit(series.Series{Start: h.Start.Add(7 * time.Minute), Step: h.Step, Values: h.Values[:length]})
		data, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}

		var back Model
		if err := back.UnmarshalBinary(data); err != nil {
			t.Fatalf("after %d samples: UnmarshalBinary: %v, want no error", length, err)
		}

		// Both see the same future.
		for i := length; i < len(h.Values); i++ {
			at := h.Time(i).Add(7 * time.Minute)
			m.Observe(at, h.Values[i])
			back.Observe(at, h.Values[i])
		}

		want, err := m.Forecast(day)
		if err != nil {
			t.Fatal(err)
		}

		got, err := back.Forecast(day)
		if err != nil {
			t.Fatal(err)
		}

		if !sameForecast(want, got) {
			t.Errorf("after %d samples: Forecast of the restored model differs, want the same", length)
		}
	}
}

func sameForecast(a, b forecast.Forecast) bool {
	if math.IsNaN(a.Skill) && math.IsNaN(b.Skill) {
		a.Skill, b.Skill = 0, 0
	}

	return reflect.DeepEqual(a, b)
}

func TestDamagedCheckpoints(t *testing.T) {
	data, err := fit(history(t, "daily")).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}

	flipped := bytes.Clone(data)
	flipped[100] ^= 1
	version := bytes.Clone(data)

	version[3]++
	for name, bad := range map[string][]byte{
		"empty": nil, "short": data[:20], "cut": data[:len(data)-1], "long": append(bytes.Clone(data), 0), "flipped": flipped,
		"another version": version, "zeros": make([]byte, len(data)),
	} {
		m := NewModel(time.Minute)
		if err := m.UnmarshalBinary(bad); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%s: UnmarshalBinary: error %v, want ErrCheckpoint", name, err)
		}
		if !reflect.DeepEqual(m, NewModel(time.Minute)) {
			t.Errorf("%s: a rejected checkpoint changed the model, want it as it was", name)
		}
	}
}

func TestObserveKeepsItsPolicy(t *testing.T) {
	at := time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)
	t.Run("duplicates and stragglers change nothing", func(t *testing.T) {
		h := history(t, "daily")
		clean := fit(h)

		noisy := NewModel(h.Step)
		for i, v := range h.Values {
			noisy.Observe(h.Time(i), v)
			noisy.Observe(h.Time(i), 1e9)

			if i > 0 {
				noisy.Observe(h.Time(i-1), 1e9)
			}
		}

		a, _ := clean.Forecast(day)
		b, _ := noisy.Forecast(day)
		if !reflect.DeepEqual(a, b) {
			t.Error("Forecast with duplicates and stragglers differs, want that without them")
		}
	})

	t.Run("a gap longer than the history empties the model", func(t *testing.T) {
		m := NewModel(time.Minute)
		for i := range 3000 {
			m.Observe(at.Add(time.Duration(i)*time.Minute), 1000)
		}

		m.Observe(at.AddDate(10, 0, 0), 1)
		f, err := m.Forecast(time.Hour)
		if err != nil {
			t.Fatal(err)
		}

		if f.Values[0] != forecast.Constant(1) || f.Reason == "" {
			t.Errorf("forecast %v with the reason %q, want 1 with a reason", f.Values[0], f.Reason)
		}
	})

	t.Run("a finer step than the buffer holds is thinned evenly", func(t *testing.T) {
		m := NewModel(time.Second)
		for i := range 2 * 3600 {
			m.Observe(at.Add(time.Duration(i)*time.Second), float64(i%2))
		}

		if len(m.buffer) > bufferSize || m.recent.count < 7 {
			t.Errorf("%d samples buffered, %d slots; want at most %d, and 7 or more", len(m.buffer), m.recent.count, bufferSize)
		}
	})

	t.Run("nothing seen", func(t *testing.T) {
		if _, err := NewModel(time.Minute).Forecast(time.Hour); !errors.Is(err, forecast.ErrEmpty) {
			t.Errorf("Forecast of an empty model: error %v, want ErrEmpty", err)
		}

		m := NewModel(time.Minute)
		m.Observe(at, math.NaN())

		if _, err := m.Forecast(time.Hour); !errors.Is(err, forecast.ErrEmpty) {
			t.Errorf("Forecast after a gap alone: error %v, want ErrEmpty", err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	for _, length := range []int{0, 3, 40, 400} {
		h := history(f, "daily")
		data, err := fit(series.Series{Start: h.Start, Step: h.Step, Values: h.Values[:length]}).MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}

		f.Add(data)
	}

	long, err := fit(families.All()[0].Make(1, 40, 4*time.Hour)).MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}

	f.Add(long)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Model
		data = sealed(data)
		if err := m.UnmarshalBinary(data); err != nil {
			return
		}

		again, err := m.MarshalBinary()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("MarshalBinary of an accepted checkpoint differs (%v), want the same", err)
		}

		got, err := m.Forecast(time.Hour)
		if err != nil && !errors.Is(err, forecast.ErrEmpty) && !errors.Is(err, forecast.ErrHorizon) {
			t.Fatal(err)
		}

		checkForecast(t, got)
		m.Observe(time.Unix(m.last+60, 0), 1)
	})
}

// TestFitAllocatesLittle bounds what one forecast of a day from 14 days of minutes allocates.
func TestFitAllocatesLittle(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector allocates, too")
	}

	h := history(t, "daily")
	const runs, limit = 20, 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	for range runs {
		if _, err := (Algorithm{}).Forecast(h, day); err != nil {
			t.Fatal(err)
		}
	}

	runtime.ReadMemStats(&after)
	if perRun := (after.TotalAlloc - before.TotalAlloc) / runs; perRun > limit {
		t.Errorf("a fit allocates %d bytes, want at most %d", perRun, limit)
	}
}
