// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observation

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/units"
)

// hoursOf is so many hours of a value.
func hoursOf(n int, v float64) Hours { return slices.Repeat(Hours{v}, n) }

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		h      Hours
		state  recommend.State
		reason string
	}{
		"nothing":             {nil, recommend.NoData, "No load is known for the last 24h."},
		"gaps alone":          {Unknown(24), recommend.NoData, "No load is known"},
		"never a real value":  {Hours{math.NaN(), math.Inf(1), -1, math.Inf(-1)}, recommend.NoData, "No load is known"},
		"all":                 {hoursOf(24, 1), recommend.Ready, ""},
		"more than all":       {hoursOf(100, 1), recommend.Ready, ""},
		"zero is a value":     {hoursOf(24, 0), recommend.Ready, ""},
		"young":               {slices.Concat(Unknown(14), hoursOf(10, 1)), recommend.Learning, "known for 10 of the last 24 hours, and has to be for 22"},
		"gaps within":         {slices.Concat(hoursOf(10, 1), Unknown(2), hoursOf(12, 1)), recommend.Ready, ""},
		"too many gaps":       {slices.Concat(hoursOf(10, 1), Unknown(4), hoursOf(10, 1)), recommend.Learning, "20 of the last 24"},
		"an hour behind":      {slices.Concat(hoursOf(23, 1), Unknown(1)), recommend.Ready, ""},
		"stale":               {slices.Concat(hoursOf(20, 1), Unknown(4)), recommend.NoData, "The last load that is known is 4h old."},
		"long ago, not since": {slices.Concat(hoursOf(100, 1), Unknown(24)), recommend.NoData, "No load is known"},
	} {
		t.Run(name, func(t *testing.T) {
			state, reason := DefaultRequirement(24).Check("load", c.h)
			if state != c.state || !strings.Contains(reason, c.reason) || (reason == "") != (c.state == recommend.Ready) {
				t.Errorf("%s, %q; want %s, %q", state, reason, c.state, c.reason)
			}
		})
	}
}

// TestCheck_PartTime checks a target that exists for some hours of some days, at each hour of a week.
func TestCheck_PartTime(t *testing.T) {
	office := func(days int, end int) Hours {
		h := Unknown(24 * days)
		for i := range h {
			hour := i + end // Since a Monday at midnight.
			if hour/24%7 < 5 && hour%24 >= 8 && hour%24 < 17 {
				h[i] = 1
			}
		}

		return h
	}

	for end := range 7 * 24 {
		for _, days := range []int{7, 14} {
			n := DefaultRequirement(24 * days)
			if state, _ := n.Check("load", office(days, end)); state == recommend.Ready {
				t.Errorf("Check of weekdays = %s, want no conclusion for a target that exists all the time", state)
			}

			n.PartTime = true
			if state, reason := n.Check("load", office(days, end)); state != recommend.Ready {
				t.Errorf("Check of weekdays, part time, %d days that end at hour %d = %s, %q, want %s", days, end, state, reason, recommend.Ready)
			}
		}
	}

	n := DefaultRequirement(7 * 24)
	n.PartTime = true
	for name, c := range map[string]struct {
		h     Hours
		state recommend.State
	}{
		"three days of nine hours": {slices.Concat(Unknown(4*24), slices.Repeat(slices.Concat(Unknown(8), hoursOf(9, 1), Unknown(7)), 3)), recommend.Learning},
		"two days of a week":       {slices.Concat(hoursOf(9, 1), Unknown(6*24), hoursOf(15, 1)), recommend.Learning},
		"every second hour":        {slices.Repeat(Hours{1, math.NaN()}, 7*12), recommend.Learning},
		"all, then nothing":        {slices.Concat(hoursOf(6*24, 1), Unknown(24)), recommend.NoData},
	} {
		if state, reason := n.Check("load", c.h); state != c.state {
			t.Errorf("Check(%s) = %s, %q, want %s", name, state, reason, c.state)
		}
	}
}

func TestMerge(t *testing.T) {
	nan := math.NaN()
	sum := Unknown(4)
	sum.Add(Hours{9, 1, nan, 2, nan})
	sum.Add(Hours{3, nan, nan})

	if !slices.EqualFunc(sum, Hours{1, 3, 2, nan}, same) {
		t.Errorf("Add = %v, want [1 3 2 NaN]", sum)
	}

	most := Hours{1, nan, 5}
	most.Max(Hours{2, 2, 2})
	most.Max(Hours{math.Inf(1), -1, 7})

	if !slices.EqualFunc(most, Hours{2, 2, 7}, same) {
		t.Errorf("Max = %v, want [2 2 7]", most)
	}
	if got := DefaultRequirement(2).Quantile(Hours{100, 1, 3}, 0.5); got != 2 {
		t.Errorf("Quantile of a window of two hours = %v, want 2", got)
	}
	if got := DefaultRequirement(2).Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("Quantile of no hours = %v, want NaN", got)
	}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// FuzzEnough: whatever the values, Ready means that enough of them are known and the last not too old, and a quantile is one
// of the known.
func FuzzEnough(f *testing.F) {
	f.Add(4, 0.5, 1, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f})
	f.Add(168, 0.9, 3, []byte{})
	f.Fuzz(func(t *testing.T, hours int, share float64, stale int, raw []byte) {
		if hours < 1 || hours > 10000 || !(share >= 0 && share <= 1) {
			return
		}

		var h Hours
		for ; len(raw) >= 8; raw = raw[8:] {
			h = append(h, math.Float64frombits(binary.LittleEndian.Uint64(raw)))
		}

		n := Requirement{Hours: hours, Share: units.Ratio(share), MaxStale: stale}
		state, reason := n.Check("x", h)
		known := n.KnownValues(h)
		if state == recommend.Ready && (len(known) == 0 || reason != "") || state != recommend.Ready && reason == "" {
			t.Errorf("Check of %v = %s, %q, want a reason unless Ready", h, state, reason)
		}
		if q := n.Quantile(h, 0.99); len(known) > 0 && !(q >= slices.Min(known) && q <= slices.Max(known)) {
			t.Errorf("Quantile of %v = %v, want it within the values", known, q)
		}
	})
}
