// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"
)

// TestLedger_Restored checks that a restart loses the accounting of some minutes, and no decision.
func TestLedger_Restored(t *testing.T) {
	knowing := func(at time.Time, _ Level) (float64, bool) { return max(jump(at), jump(at.Add(4*time.Minute))), true }
	whole := days(t, 4, knowing)
	state, err := whole.MarshalBinary()
	if err != nil || len(state) > 256 {
		t.Fatalf("MarshalBinary = %d bytes, error %v, want at most 256", len(state), err)
	}

	again, err := NewLedger(plant())
	if err != nil {
		t.Fatal(err)
	}

	if err := again.UnmarshalBinary(state); err != nil {
		t.Fatal(err)
	}

	want := whole.Choose(testPrice)
	got := again.Choose(testPrice)
	if !want.Use || got.Level != want.Level || math.Abs(got.ExtraCost-want.ExtraCost) > 1e-5 || math.Abs(got.SparedShortage-want.SparedShortage) > 1e-5 {
		t.Errorf("Choose after a restart = %+v, want %+v", got, want)
	}
	if !again.LastSample().Equal(whole.LastSample()) {
		t.Errorf("LastSample after a restart = %s, want %s", again.LastSample(), whole.LastSample())
	}

	// Both observe another day; only its first minutes are not accounted.
	for m := range 24 * 60 {
		at := whole.LastSample().Add(time.Minute)
		for _, l := range []*Ledger{whole, again} {
			l.Observe(at, jump(at), func(q Level) (float64, bool) { return knowing(at, q) })
		}
		_ = m
	}

	if a, b := whole.Choose(testPrice), again.Choose(testPrice); a.Level != b.Level || math.Abs(a.ExtraCost-b.ExtraCost) > 0.01 {
		t.Errorf("Choose a day after the restart = %+v, want %+v", b, a)
	}
}

func TestLedger_InvalidState(t *testing.T) {
	good, err := days(t, 2, func(time.Time, Level) (float64, bool) { return 5, true }).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}

	change := func(at int, b byte) []byte {
		out := bytes.Clone(good)
		out[at] = b
		return out
	}

	longAgo := bytes.Clone(good)
	for _, at := range []int{1, 9} {
		binary.LittleEndian.PutUint64(longAgo[at:], 1<<34)
	}

	for name, state := range map[string][]byte{
		"nothing":                  nil,
		"too short":                good[:len(good)-1],
		"too long":                 append(bytes.Clone(good), 0),
		"another version":          change(0, 9),
		"a time in the far future": change(8, 0x7f),
		"durations that overflow":  longAgo,
		"more seen than passed":    change(16, 0x01),
		"NaN":                      append(bytes.Clone(good[:17]), bytes.Repeat([]byte{0xff}, len(good)-17)...),
		"negative":                 change(20, 0xc0),
	} {
		l := days(t, 1, func(time.Time, Level) (float64, bool) { return 5, true })
		before := l.Choose(testPrice)

		if err := l.UnmarshalBinary(state); !errors.Is(err, ErrInvalidState) {
			t.Errorf("%s: UnmarshalBinary: error %v, want ErrInvalidState", name, err)
		}
		if l.Choose(testPrice) != before {
			t.Errorf("%s: UnmarshalBinary changed the ledger, want it unchanged", name)
		}
	}
}

func TestLedger_SetPlant(t *testing.T) {
	l := days(t, 4, func(at time.Time, _ Level) (float64, bool) { return max(jump(at), jump(at.Add(4*time.Minute))), true })
	before := l.Choose(testPrice)

	bigger := plant()
	bigger.Capacity = 2
	if err := l.SetPlant(bigger); err != nil {
		t.Fatal(err)
	}

	if after := l.Choose(testPrice); after != before || !after.Use {
		t.Errorf("Choose with pods of another size = %+v, want %+v", after, before)
	}

	bigger.Target = 2
	if err := l.SetPlant(bigger); err == nil {
		t.Error("SetPlant with a target of 200 % succeeds, want an error")
	}
}

func FuzzLedgerState(f *testing.F) {
	l, err := NewLedger(plant())
	if err != nil {
		f.Fatal(err)
	}

	empty, err := l.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}

	f.Add(empty)
	f.Fuzz(func(t *testing.T, state []byte) {
		l, err := NewLedger(plant())
		if err != nil {
			t.Fatal(err)
		}

		if l.UnmarshalBinary(state) != nil {
			return
		}

		c := l.Choose(testPrice)
		if c.Use && !(c.SparedShortage > 0 && c.SparedShortage <= 1) {
			t.Errorf("Choose = %+v, want a spared share above 0 and at most 1", c)
		}

		l.Observe(l.LastSample().Add(time.Minute), 5, func(Level) (float64, bool) { return 6, true })
		l.Choose(0)
	})
}
