// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

var noon = time.Date(2023, 10, 17, 12, 0, 0, 0, time.UTC)

func shanghai(t *testing.T) nodeload.Format {
	t.Helper()
	return nodeload.Format{Zone: time.FixedZone("Asia/Shanghai", 8*60*60)}
}

func TestFormatLoad(t *testing.T) {
	s := nodeload.Sample{Value: 0.630119, Time: noon}
	if got, want := (nodeload.Format{}).Load(s), "0.63012,2023-10-17T12:00:00Z"; got != want {
		t.Errorf("in UTC %q, want %q", got, want)
	}
	if got, want := shanghai(t).Load(s), "0.63012,2023-10-17T20:00:00Z"; got != want {
		t.Errorf("in local time %q, want %q", got, want)
	}
	if got, want := (nodeload.Format{}).Hot(nodeload.Hot{Value: 3, Time: noon}), "3,2023-10-17T12:00:00Z"; got != want {
		t.Errorf("hot value %q, want %q", got, want)
	}
}

func TestParseLoad(t *testing.T) {
	for text, want := range map[string]error{
		"0.63012,2023-10-17T12:00:00Z": nil,
		"0,2023-10-17T12:00:00Z":       nil,
		"-0,2023-10-17T12:00:00Z":      nil,
		"1.2,2023-10-17T12:00:00Z":     nil,
		"":                             nodeload.ErrForm,
		"0.5":                          nodeload.ErrForm,
		"0.5,2023-10-17T12:00:00Z,":    nodeload.ErrForm,
		"0.5,1,2023-10-17T12:00:00Z":   nodeload.ErrForm,
		strings.Repeat("0", 60) + ",2023-10-17T12:00:00Z": nodeload.ErrForm,
		",2023-10-17T12:00:00Z":                           nodeload.ErrValue,
		"hot,2023-10-17T12:00:00Z":                        nodeload.ErrValue,
		"NaN,2023-10-17T12:00:00Z":                        nodeload.ErrValue,
		"+Inf,2023-10-17T12:00:00Z":                       nodeload.ErrValue,
		"-0.1,2023-10-17T12:00:00Z":                       nodeload.ErrValue,
		"1e308,2023-10-17T12:00:00Z":                      nodeload.ErrValue,
		"1e999,2023-10-17T12:00:00Z":                      nodeload.ErrValue,
		"100.1,2023-10-17T12:00:00Z":                      nodeload.ErrValue,
		"0.5,":                                            nodeload.ErrTime,
		"0.5,Z":                                           nodeload.ErrTime,
		"0.5,2023-10-17 12:00:00":                         nodeload.ErrTime,
		"0.5,2023-13-17T12:00:00Z":                        nodeload.ErrTime,
		"0.5,0001-01-01T00:00:00Z":                        nodeload.ErrTime,
		"0.5,2023-10-17T12:00:00+08:00":                   nodeload.ErrTime,
		"0.5,1697544000":                                  nodeload.ErrTime,
	} {
		got, err := (nodeload.Format{}).ParseLoad(text)
		if !errors.Is(err, want) {
			t.Errorf("ParseLoad(%q): error %v, want %v", text, err, want)
		}
		if err != nil && got != (nodeload.Sample{}) {
			t.Errorf("ParseLoad(%q) = %v with an error, want no sample", text, got)
		}
		if err == nil && !got.Time.Equal(noon) {
			t.Errorf("ParseLoad(%q): time %v, want %v", text, got.Time, noon)
		}
	}

	got, err := shanghai(t).ParseLoad("0.5,2023-10-17T20:00:00Z")
	if err != nil || !got.Time.Equal(noon) || got.Value != 0.5 {
		t.Errorf("ParseLoad in local time = %v, %v, want 0.5 at %v", got, err, noon)
	}
}

func TestParseHot(t *testing.T) {
	for text, want := range map[string]error{
		"7,2023-10-17T12:00:00Z":                    nil,
		"7.5,2023-10-17T12:00:00Z":                  nodeload.ErrHotValue,
		"-1,2023-10-17T12:00:00Z":                   nodeload.ErrHotValue,
		"99999999999999999999,2023-10-17T12:00:00Z": nodeload.ErrHotValue,
		"1048577,2023-10-17T12:00:00Z":              nodeload.ErrHotValue,
		"7":                                         nodeload.ErrForm,
		"7,8,9":                                     nodeload.ErrForm,
		"7,noon":                                    nodeload.ErrTime,
	} {
		got, err := (nodeload.Format{}).ParseHot(text)
		if !errors.Is(err, want) || err == nil && got != (nodeload.Hot{Value: 7, Time: noon}) {
			t.Errorf("%q: %v, %v, want the error %v", text, got, err, want)
		}
	}
}

// FuzzParseLoad checks that accepted text is a valid load and survives a round trip.
func FuzzParseLoad(f *testing.F) {
	for _, text := range []string{"0.63012,2023-10-17T15:04:32Z", "1e308,2023-10-17T15:04:32Z", "0x1p-2,2023-10-17T15:04:32.5Z", "-0,9999-12-31T23:59:59Z", ",,"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		s, err := (nodeload.Format{}).ParseLoad(text)
		if err != nil {
			return
		}

		if !(s.Value >= 0 && s.Value <= nodeload.MaxLoad) || math.Signbit(float64(s.Value)) || s.Time.IsZero() {
			t.Fatalf("ParseLoad(%q) = %v, want a load from 0 to %v with a time", text, s, nodeload.MaxLoad)
		}

		again, err := (nodeload.Format{}).ParseLoad((nodeload.Format{}).Load(s))
		if err != nil || math.Abs(float64(again.Value-s.Value)) > 0.000005001 || !again.Time.Equal(s.Time.Truncate(time.Second)) {
			t.Fatalf("ParseLoad(%q) formatted and parsed again = %v, %v, want %v", text, again, err, s)
		}
	})
}

// FuzzParseHot checks that accepted values are within bounds.
func FuzzParseHot(f *testing.F) {
	f.Add("3,2023-10-17T15:04:32Z")
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := (nodeload.Format{}).ParseHot(text); err == nil && (h.Value < 0 || h.Value > nodeload.MaxHot || h.Time.IsZero()) {
			t.Fatalf("ParseHot(%q) = %v, want a value from 0 to %d with a time", text, h, nodeload.MaxHot)
		}
	})
}

func TestStateAt(t *testing.T) {
	const active = 8 * time.Minute
	for name, test := range map[string]struct {
		age  time.Duration
		want nodeload.State
	}{
		"now":               {0, nodeload.Fresh},
		"at the end":        {active, nodeload.Fresh},
		"over":              {active + time.Second, nodeload.Stale},
		"a clock ahead":     {-nodeload.MaxSkew, nodeload.Fresh},
		"from the future":   {-nodeload.MaxSkew - time.Second, nodeload.Stale},
		"another time zone": {-8 * time.Hour, nodeload.Stale},
	} {
		if got := (nodeload.Sample{Value: units.Ratio(0.1), Time: noon.Add(-test.age)}).StateAt(noon, active); got != test.want {
			t.Errorf("%s: StateAt = %v, want %v", name, got, test.want)
		}
	}

	if got := (nodeload.Sample{}).StateAt(noon, active); got != nodeload.Absent {
		t.Errorf("StateAt of no sample = %v, want absent", got)
	}
	if got := (nodeload.Hot{Value: 1, Time: noon.Add(-6 * time.Minute)}).StateAt(noon); got != nodeload.Stale {
		t.Errorf("StateAt of an old hot value = %v, want stale", got)
	}
}

func BenchmarkParseLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (nodeload.Format{}).ParseLoad("0.63012,2023-10-17T15:04:32Z"); err != nil {
			b.Fatal(err)
		}
	}
}
