// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast/internal/families"
	"crane.io/crane/pkg/series"
)

func TestShares(t *testing.T) {
	for _, v := range []float32{0, 1, 0.5, 0.75, 2, 1.0 / 1024} {
		if got := unpackShare(packShare(v)); got != v {
			t.Errorf("%v becomes %v", v, got)
		}
	}
	if got := unpackShare(packShare(nan())); !isNaN(got) {
		t.Errorf("a gap becomes %v", got)
	}
	for v, want := range map[float32]float32{1e-20: 0, 1e30: 4, float32(math.Inf(1)): 4} {
		if got := unpackShare(packShare(v)); math.Abs(float64(got-want)) > 0.002 {
			t.Errorf("%v becomes %v, want about %v", v, got, want)
		}
	}
	source := rand.New(rand.NewPCG(1, 1))
	last, lastCode := float32(0), uint16(0)
	for range 10000 {
		v := float32(math.Exp2(-29 * source.Float64()))
		code := packShare(v)
		if got := float64(unpackShare(code)); math.Abs(got-float64(v)) > float64(v)/4096*1.0001 {
			t.Fatalf("%v becomes %v", v, got)
		}
		if v > last && code < lastCode || v < last && code > lastCode {
			t.Fatalf("%v and %v change places", v, last)
		}
		last, lastCode = v, code
	}
}

func TestCells(t *testing.T) {
	for name, u := range map[string]unit{
		"empty": emptyUnit(),
		"zeros": {},
		"a gap": {mid: [maxSub]float32{1, nan(), 0.5}, high: 2, top: 2},
		"huge":  {mid: [maxSub]float32{1e10, 1e10, 1e10}, high: 1e10, top: 1e10},
	} {
		got := u.pack().unpack()
		for i := range unitAtoms {
			if a, b := u.atom(i), got.atom(i); a != b && !(isNaN(a) && isNaN(b)) {
				t.Errorf("%s: atom %d is %v, was %v", name, i, b, a)
			}
		}
		if !u.pack().sane(maxSub) {
			t.Errorf("%s: not taken for sane", name)
		}
	}
	if (cell{top: 1, parts: [maxSub + 1]uint16{absent, absent, absent, absent}}).sane(maxSub) {
		t.Error("a top without samples is taken for sane")
	}
}

// TestOlderHistory: what leaves the two weeks is known by the hour for three weeks more, and no longer.
func TestOlderHistory(t *testing.T) {
	const days = 40
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, time.Hour, 4 * time.Hour} {
		m := NewModel(step)
		h := series.Series{Start: monday.Add(7 * time.Minute), Step: step, Values: make([]float64, int(days*day/step))}
		for i := range h.Values {
			h.Values[i] = 1 + float64(int(h.Time(i).Sub(monday)/day)) // the number of the day
			m.Observe(h.Time(i), h.Values[i])
		}
		perDay := m.layout.perDay()
		for ago := 1; ago <= (historyDays+olderDays-1)*perDay; ago++ {
			index := m.head - int64(ago)
			u := m.recent.at(index).unpack()
			if ago > historyDays*perDay {
				u = m.oldUnit(index)
			}
			at := time.Unix(index*m.layout.seconds(), 0)
			want := float32(1 + int(at.Sub(monday)/day))
			if got := u.middle(m.layout.sub) * float32(m.scale); math.Abs(float64(got-want)) > 0.01*float64(want) {
				t.Fatalf("step %s: %s is %v, want %v", step, at.UTC(), got, want)
			}
		}
		if u := m.oldUnit(m.head - int64((historyDays+olderDays+1)*perDay)); !u.empty() {
			t.Errorf("step %s: more than five weeks are kept", step)
		}
	}
}

// TestCheckpointOfFiveWeeks: the older history is part of a checkpoint, and goes on where it was.
func TestCheckpointOfFiveWeeks(t *testing.T) {
	for _, step := range []time.Duration{5 * time.Minute, time.Hour} {
		h := families.All()[0].Make(5, 45, step)
		cut := len(h.Values) - int(9*day/step) - 1
		m := fit(series.Series{Start: h.Start, Step: step, Values: h.Values[:cut]})
		data, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if !m.long() || len(data) > MaxCheckpoint {
			t.Errorf("%d bytes, older history %v", len(data), m.long())
		}
		var back Model
		if err := back.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}
		for i := cut; i < len(h.Values); i++ {
			m.Observe(h.Time(i), h.Values[i])
			back.Observe(h.Time(i), h.Values[i])
		}
		want, wantErr := m.Forecast(day)
		got, gotErr := back.Forecast(day)
		if wantErr != nil || gotErr != nil || !sameForecast(want, got) {
			t.Errorf("step %s: the restored model forecasts something else (%v, %v)", step, wantErr, gotErr)
		}
	}
}
