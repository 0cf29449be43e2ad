// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// randomInput returns an input in which anything may be missing.
func randomInput[T Amount](r *rand.Rand, at time.Time, size T) Input[T] {
	amount := func() T { return T(r.Int64N(int64(size) * 5 / 4)) }
	rarely := func() bool { return r.IntN(12) == 0 }
	in := Input[T]{At: at, Allocatable: size, PodsKnown: !rarely(), Use: Use[T]{At: at, Total: amount(), Elastic: amount() / 2}}
	in.Reserve = []units.Ratio{0, 0, 0.1, 0.4, 1}[r.IntN(5)]

	in.Use.Exclusive = amount() / 8
	in.Allocated = amount() / 3
	if r.IntN(2) == 0 {
		in.Forecast = Forecast[T]{Requested: true, OK: !rarely(), Peak: amount(), Until: at.Add(time.Hour)}
	}

	if rarely() {
		in.Use.At = at.Add(time.Duration(r.IntN(200)-150) * time.Second)
	}

	if rarely() {
		in.Reserve = units.Ratio([]float64{math.NaN(), math.Inf(1), -1, 2}[r.IntN(4)])
	}

	if rarely() {
		in.Use.Total = -amount() - 1
	}

	if rarely() {
		in.Allocatable = 0
	}

	return in
}

// runRandom runs random steps on a node and calls check after each, with the previous state.
func runRandom[T Amount](seed uint64, size T, p Policy[T], check func(in Input[T], before State[T], r Result[T], shown T)) {
	random := rand.New(rand.NewPCG(seed, 1))
	var s State[T]
	at := start
	var shown T
	absent := true

	// Inputs stay the same for many steps, so that amounts grow.
	kept := randomInput(random, at, size)
	for range 400 {
		at = at.Add(period)
		if random.IntN(20) == 0 {
			kept = randomInput(random, at, size)
		}

		in := kept
		in.At = at
		in.Advertised = shown
		in.NotAdvertised = absent
		if in.Use.At.Equal(kept.At) {
			in.Use.At = at
		}
		if in.Forecast.Requested && random.IntN(10) > 0 {
			in.Forecast.Until = at.Add(time.Hour)
		}

		before := s
		before.offers.points = append([]point[T](nil), s.offers.points...)
		r := Decide(in, p, &s)
		check(in, before, r, shown)

		if r.NeedsWrite {
			shown = r.Advertise
			absent = false
		}

		if random.IntN(50) == 0 {
			shown = 0 // as by a kubelet
		}
	}
}

func forBoth(t *testing.T, cpu func(in Input[units.MilliCPU], before State[units.MilliCPU], r Result[units.MilliCPU], shown units.MilliCPU),
	memory func(in Input[units.Bytes], before State[units.Bytes], r Result[units.Bytes], shown units.Bytes),
) {
	t.Helper()

	for seed := range uint64(40) {
		runRandom(seed, 16000, CPU(), cpu)
		runRandom(seed, 3900, CPU(), cpu)
		runRandom(seed, 64<<30, Memory(), memory)
	}
}

// checkBounds checks that amounts are whole units, at most allocatable - reserve and at least what pods hold.
func checkBounds[T Amount](t *testing.T, p Policy[T]) func(Input[T], State[T], Result[T], T) {
	return func(in Input[T], before State[T], r Result[T], _ T) {
		if r.Advertise%p.Unit != 0 || r.Advertise < 0 {
			t.Fatalf("advertises %d, want whole units of 0 or more: %+v", r.Advertise, in)
		}

		if !in.PodsKnown {
			if before.started && r.Advertise != before.advertised {
				t.Fatalf("changes %d to %d with unknown pods, want no change", before.advertised, r.Advertise)
			}

			return
		}

		held := roundUpUnits(in.Allocated, p.Unit)
		if r.Advertise < held {
			t.Fatalf("advertises %d, want at least the %d that pods hold: %+v", r.Advertise, held, in)
		}
		if r.Problem != "" && r.Advertise > max(before.advertised, held) {
			t.Fatalf("grows from %d to %d, want no growth because %s", before.advertised, r.Advertise, r.Problem)
		}

		if in.Allocatable > 0 && in.Reserve >= 0 && in.Reserve <= 1 {
			if limit := max(roundDown(in.Allocatable-fraction(in.Allocatable, in.Reserve), p.Unit), held); r.Advertise > limit {
				t.Fatalf("advertises %d, want at most %d: %+v", r.Advertise, limit, in)
			}
		}

		if r.Known && r.Deficit != max(held-r.Offer, 0) {
			t.Fatalf("deficit %d of the offer %d, want %d", r.Deficit, r.Offer, max(held-r.Offer, 0))
		}

		// The amount exceeds the offer by less than a material change.
		if step := max(fraction(in.Allocatable, p.Material), p.Unit); r.Known && r.Advertise >= max(r.Offer, held)+step {
			t.Fatalf("advertises %d with an offer of %d and %d held, want less than a material change of %d above", r.Advertise, r.Offer, held, step)
		}
	}
}

func TestDecide_Bounds(t *testing.T) { forBoth(t, checkBounds(t, CPU()), checkBounds(t, Memory())) }

// checkMonotone checks that more use, a higher forecast or a higher reserve never increase the amount.
func checkMonotone[T Amount](t *testing.T, p Policy[T]) func(Input[T], State[T], Result[T], T) {
	return func(in Input[T], before State[T], r Result[T], _ T) {
		if !in.PodsKnown || r.Problem != "" {
			return
		}

		for name, change := range map[string]func(*Input[T]){
			"use":       func(in *Input[T]) { in.Use.Total += in.Allocatable / 7 },
			"exclusive": func(in *Input[T]) { in.Use.Exclusive += in.Allocatable / 9 },
			"elastic":   func(in *Input[T]) { in.Use.Elastic /= 2 },
			"forecast":  func(in *Input[T]) { in.Forecast.Peak += in.Allocatable / 5 },
			"reserve":   func(in *Input[T]) { in.Reserve = min(in.Reserve+0.2, 1) },
		} {
			more := in
			change(&more)

			state := before
			state.offers.points = append([]point[T](nil), before.offers.points...)
			if other := Decide(more, p, &state); other.Advertise > r.Advertise {
				t.Fatalf("with more %s it advertises %d, want at most %d: %+v", name, other.Advertise, r.Advertise, in)
			}
		}
	}
}

func TestDecide_Monotone(t *testing.T) {
	forBoth(t, checkMonotone(t, CPU()), checkMonotone(t, Memory()))
}

// TestWindow_Bounded checks that a window stays within its bound and its minimum is at most the true one.
func TestWindow_Bounded(t *testing.T) {
	var w window[units.Bytes]
	at := start
	for i := range 5 * maxPoints {
		at = at.Add(time.Millisecond)
		w.add(at, units.Bytes(i), time.Hour) // Rising values must all be kept.

		if len(w.points) > maxPoints || w.minimum() != 0 {
			t.Fatalf("%d points with minimum %d, want at most %d with 0", len(w.points), w.minimum(), maxPoints)
		}
	}

	if w.add(at.Add(time.Minute), 5, time.Hour) {
		t.Error("add within a minute covers an hour, want false")
	}
	if !w.add(at.Add(2*time.Hour), 7, time.Hour) || w.minimum() != 7 {
		t.Errorf("minimum after two hours = %d, want 7 and the span covered", w.minimum())
	}
}

func TestParseAmounts(t *testing.T) {
	for v, want := range map[float64]units.MilliCPU{0: 0, 12.5: 12500, 0.0001: 1, 2.0000000001: 2000} {
		if got, err := ParseCores(v); err != nil || got != want {
			t.Errorf("ParseCores(%v) = %d, %v, want %d", v, got, err, want)
		}
	}

	if b, err := ParseBytes(1.5); err != nil || b != 2 {
		t.Errorf("ParseBytes(1.5) = %d, %v, want 2", b, err)
	}

	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e30} {
		if _, err := ParseCores(v); err == nil {
			t.Errorf("ParseCores(%v) succeeds, want an error", v)
		}
		if _, err := ParseBytes(v); err == nil {
			t.Errorf("ParseBytes(%v) succeeds, want an error", v)
		}
	}
}

func TestParseReserve(t *testing.T) {
	for text, want := range map[string]units.Ratio{"40%": 0.4, "40": 0.4, " 12.5 % ": 0.125, "0": 0, "100%": 1} {
		if got, err := ParseReserve(text); err != nil || got != want {
			t.Errorf("ParseReserve(%q) = %v, %v, want %v", text, got, err, want)
		}
	}

	for _, text := range []string{"", "%", "-1%", "101", "NaN", "Inf", "40%%", "forty", "0x1p-2%x"} {
		if got, err := ParseReserve(text); err == nil {
			t.Errorf("ParseReserve(%q) = %v, want an error", text, got)
		}
	}
}

func FuzzParseReserve(f *testing.F) {
	for _, s := range []string{"40%", "40", "", "NaN", "1e400", "-0"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseReserve(text); err == nil && !(r >= 0 && r <= 1) {
			t.Errorf("ParseReserve(%q) = %v, want 0 to 1", text, r)
		}
	})
}
