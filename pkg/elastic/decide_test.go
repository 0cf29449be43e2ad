// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const period = 10 * time.Second

// fixture is a node with 16 cores, 3 of them used, whose advertised amount is updated as by an API server.
type fixture struct {
	in     Input[units.MilliCPU]
	policy Policy[units.MilliCPU]
	state  State[units.MilliCPU]
	last   Result[units.MilliCPU]
	writes int
}

func newFixture() *fixture {
	n := &fixture{policy: CPU()}
	n.in = Input[units.MilliCPU]{At: start, Allocatable: 16000, PodsKnown: true, NotAdvertised: true, Use: Use[units.MilliCPU]{At: start, Total: 3000}}
	return n
}

// step advances by one period with new measurements.
func (n *fixture) step() Result[units.MilliCPU] {
	n.in.At = n.in.At.Add(period)
	if !n.in.Use.At.IsZero() {
		n.in.Use.At = n.in.At
	}

	return n.decide()
}

func (n *fixture) decide() Result[units.MilliCPU] {
	n.last = Decide(n.in, n.policy, &n.state)
	if n.last.NeedsWrite {
		n.in.Advertised = n.last.Advertise
		n.in.NotAdvertised = false
		n.writes++
	}

	return n.last
}

// advance advances by several periods.
func (n *fixture) advance(d time.Duration) Result[units.MilliCPU] {
	for range int(d / period) {
		n.step()
	}

	return n.last
}

func newForecast(cores units.MilliCPU) Forecast[units.MilliCPU] {
	return Forecast[units.MilliCPU]{Requested: true, OK: true, Peak: cores, Until: start.Add(24 * time.Hour)}
}

// TestDecide_WorkedExamples checks steady-state offers, including cases that gocrane computes wrongly.
func TestDecide_WorkedExamples(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		want   units.MilliCPU
		from   Source
	}{
		"12.5 cores are expected, 3 used: gocrane says 13": {func(n *fixture) { n.in.Forecast = newForecast(12500) }, 3000, SourceForecast},
		"the same with its 40 % in reserve: gocrane says 6": {func(n *fixture) {
			n.in.Forecast = newForecast(12500)
			n.in.Reserve = 0.4
		}, 0, SourceForecast},
		"a tenth of the need is kept beside it": {func(n *fixture) {
			n.in.Forecast = newForecast(12500)
			n.policy.Margin = 0.1
		}, 2000, SourceForecast},
		"15.9 cores, 12.5 expected: gocrane takes 16": {func(n *fixture) {
			n.in.Allocatable = 15900
			n.in.Forecast = newForecast(12500)
		}, 3000, SourceForecast},
		"0.9 core is none":         {func(n *fixture) { n.in.Use.Total = 15100 }, 0, SourceUse},
		"no forecast is requested": {func(*fixture) {}, 13000, SourceUse},
		"the use is above the forecast": {func(n *fixture) {
			n.in.Forecast = newForecast(2000)
			n.in.Use.Total = 9500
		}, 6000, SourceUse},
		"elastic pods use 8 of 11 cores":                              {func(n *fixture) { n.in.Use.Total, n.in.Use.Elastic = 11000, 8000 }, 13000, SourceUse},
		"elastic pods use more than the node, which cannot be":        {func(n *fixture) { n.in.Use.Elastic = 99000 }, 16000, SourceUse},
		"2 cores are held exclusively and idle":                       {func(n *fixture) { n.in.Use.Exclusive = 2000 }, 11000, SourceUse},
		"a quarter in reserve":                                        {func(n *fixture) { n.in.Reserve = 0.25 }, 9000, SourceUse},
		"all in reserve":                                              {func(n *fixture) { n.in.Reserve = 1 }, 0, SourceUse},
		"more is used than there is":                                  {func(n *fixture) { n.in.Use.Total = 20000 }, 0, SourceUse},
		"pods hold 14, which are 1 more than there is: none below":    {func(n *fixture) { n.in.Allocated = 14000 }, 14000, SourceUse},
		"pods hold more than a reserve that was raised since":         {func(n *fixture) { n.in.Allocated, n.in.Reserve = 10000, 0.5 }, 10000, SourceUse},
		"pods hold parts of cores, which extended resources have not": {func(n *fixture) { n.in.Allocated, n.in.Reserve = 9001, 0.5 }, 10000, SourceUse},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFixture()
			n.policy.Margin = 0
			c.change(n)

			r := n.advance(15 * time.Minute)
			if r.Advertise != c.want || n.in.Advertised != c.want || r.NeedSource != c.from {
				t.Errorf("advertises %d from the %s, want %d from the %s: %+v", r.Advertise, r.NeedSource, c.want, c.from, r)
			}
		})
	}
}

// TestDecide_Memory: 32 GiB with 8 GiB used and 40 % in reserve; gocrane offers 19.2 GiB.
func TestDecide_Memory(t *testing.T) {
	const gi = 1 << 30
	p := Memory()
	p.Margin = 0

	var s State[units.Bytes]
	in := Input[units.Bytes]{At: start, Allocatable: 32 * gi, Reserve: 0.4, PodsKnown: true, NotAdvertised: true, Use: Use[units.Bytes]{At: start, Total: 8 * gi}}
	var r Result[units.Bytes]
	for range 100 {
		in.At = in.At.Add(period)
		in.Use.At = in.At
		r = Decide(in, p, &s)
		if r.NeedsWrite {
			in.Advertised = r.Advertise
			in.NotAdvertised = false
		}
	}

	if want := units.Bytes(32*gi) - 13743895348 - 8*gi; r.Offer != want || want-r.Advertise > fraction(in.Allocatable, p.Material) {
		t.Errorf("offers %d and advertises %d, want %d", r.Offer, r.Advertise, want)
	}
}

// TestDecide_GrowsSlowly checks that the amount grows only after the offer was stable, by at most the growth rate, and not with a varying offer.
func TestDecide_GrowsSlowly(t *testing.T) {
	n := newFixture()
	n.policy.Margin = 0
	if r := n.advance(2 * time.Minute); r.Advertise != 0 || r.Phase != Waiting || n.writes != 0 {
		t.Fatalf("after two minutes %+v, want nothing advertised or written yet", r)
	}

	before := units.MilliCPU(0)
	at := n.in.At
	for range 60 {
		r := n.step()
		minutes := r.At.Sub(at).Minutes()
		if limit := units.MilliCPU(0.2*16000*minutes + 1e-6); r.Advertise > limit || r.Advertise < before {
			t.Fatalf("advertises %d after %.1f minutes of growth, want from %d to %d", r.Advertise, minutes, before, limit)
		}

		before = r.Advertise
	}

	if before != 13000 || n.last.Phase != Steady {
		t.Errorf("ends at %d, %s, want 13000 and steady", before, n.last.Phase)
	}
	if n.writes > 13 {
		t.Errorf("wrote %d times for 13 cores, want at most 13", n.writes)
	}

	// Capacity that is needed every minute is never offered.
	m := newFixture()

	m.policy.Margin = 0
	for i := range 200 {
		m.in.Use.Total = 3000
		if i%6 == 0 {
			m.in.Use.Total = 12000
		}

		if r := m.step(); r.Advertise > 4000 {
			t.Fatalf("advertises %d, want at most 4000 because 12 cores are used each minute", r.Advertise)
		}
	}

	if m.last.Advertise != 4000 {
		t.Errorf("ends at %d, want 4000", m.last.Advertise)
	}
}

// TestDecide_ShrinksAtOnce checks that the amount shrinks with the next decision, but not below what pods hold.
func TestDecide_ShrinksAtOnce(t *testing.T) {
	n := newFixture()
	n.advance(15 * time.Minute)
	n.in.Allocated = 5000

	n.in.Use.Total = 9000
	n.in.Use.Elastic = 1000
	if r := n.step(); r.Advertise != 7000 || r.Phase != Shrinking || r.Deficit != 0 || math.Round(float64(100*r.AllocatedShare)) != 71 {
		t.Errorf("Decide after a higher use = %+v, want 7000 at once, 71 %% of it allocated", r)
	}

	n.in.Use.Total = 13000
	r := n.step()
	if r.Advertise != 5000 || r.Phase != Deficit || r.Offer != 2000 || r.Deficit != 3000 || r.AllocatedShare != 2.5 {
		t.Errorf("Decide with an offer below the allocation = %+v, want 5000 advertised and a deficit of 3000", r)
	}

	n.in.Use.Total = 20000

	if n.step().AllocatedShare != 6 {
		t.Errorf("AllocatedShare of an empty offer: %+v, want 6", n.last)
	}

	// Without the pods their amount is withdrawn.
	n.in.Allocated = 0
	if r := n.step(); r.Advertise != 0 || r.Deficit != 0 || r.AllocatedShare != 0 {
		t.Errorf("Decide without pods = %+v, want nothing advertised", r)
	}
}

// TestDecide_NoChurn checks that immaterial changes are not written.
func TestDecide_NoChurn(t *testing.T) {
	p := Memory()
	var s State[units.Bytes]

	const gi = 1 << 30
	in := Input[units.Bytes]{At: start, Allocatable: 100 * gi, PodsKnown: true, NotAdvertised: true, Use: Use[units.Bytes]{Total: 50 * gi}}
	wrote := 0
	for i := range 1000 {
		in.At = in.At.Add(period)
		in.Use.At = in.At
		in.Use.Total = 50*gi + units.Bytes(i%7)*gi/10
		r := Decide(in, p, &s)
		if r.NeedsWrite {
			in.Advertised = r.Advertise
			in.NotAdvertised = false
			wrote++
		}

		if i > 100 && r.NeedsWrite {
			t.Fatalf("wrote %d again at %d: %+v, want no immaterial change", r.Advertise, i, r)
		}
	}

	if wrote == 0 || wrote > 30 {
		t.Errorf("wrote %d times, want 1 to 30", wrote)
	}
}

// TestDecide_UnknownInput checks unknown inputs: the amount is held, then shrinks to what pods hold, and never grows.
func TestDecide_UnknownInput(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*fixture)
		why  string
		hold units.MilliCPU // while the input is unknown
	}{
		"no use":            {func(n *fixture) { n.in.Use = Use[units.MilliCPU]{Reason: "no /proc/stat"} }, "no /proc/stat", 13000},
		"stale use":         {func(n *fixture) { n.in.Use.At = n.in.At.Add(-61 * time.Second) }, "ago", 13000},
		"use of tomorrow":   {func(n *fixture) { n.in.Use.At = n.in.At.Add(24 * time.Hour) }, "ahead of the clock", 13000},
		"use below nothing": {func(n *fixture) { n.in.Use.Total = -1 }, "out of range", 13000},
		"use of too much":   {func(n *fixture) { n.in.Use.Total = math.MaxInt64 }, "out of range", 13000},
		"no node":           {func(n *fixture) { n.in.Allocatable = 0 }, "allocatable is unknown", 13000},
		"a node below 0":    {func(n *fixture) { n.in.Allocatable = math.MinInt64 }, "allocatable is unknown", 13000},
		"reserve NaN":       {func(n *fixture) { n.in.Reserve = units.Ratio(math.NaN()) }, "reserve", 13000},
		"reserve below 0":   {func(n *fixture) { n.in.Reserve = -0.1 }, "reserve", 13000},
		"reserve above 1":   {func(n *fixture) { n.in.Reserve = 1.1 }, "reserve", 13000},
		"reserve unread":    {func(n *fixture) { n.in.ReserveProblem = "x%" }, "x%", 13000},
		"no forecast yet":   {func(n *fixture) { n.in.Forecast = Forecast[units.MilliCPU]{Requested: true, Detail: "not yet"} }, "not yet", 13000},
		"forecast that has ended": {func(n *fixture) {
			n.in.Forecast = newForecast(1000)
			n.in.Forecast.Until = n.in.At
		}, "ended", 13000},
		"forecast below nothing": {func(n *fixture) { n.in.Forecast = newForecast(-1) }, "out of range", 13000},
		"no use, and a higher forecast": {func(n *fixture) {
			n.in.Use = Use[units.MilliCPU]{}
			n.in.Forecast = newForecast(10000)
		}, "use", 6000},
		"no forecast, and more use": {func(n *fixture) {
			n.in.Forecast = Forecast[units.MilliCPU]{Requested: true}
			n.in.Use.Total = 8000
		}, "no forecast", 8000},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFixture()
			n.policy.Margin = 0
			n.advance(15 * time.Minute)

			n.in.Allocated = 2000
			for i := range 60 {
				n.in.At = n.in.At.Add(period)
				n.in.Use = Use[units.MilliCPU]{At: n.in.At, Total: 3000}
				c.lose(n)
				r := n.decide()

				want := c.hold
				phase := Holding
				if i >= 30 {
					want = 2000
					phase = Withdrawn
				}

				if r.Advertise != want || r.Phase != phase || !strings.Contains(r.Problem, c.why) || r.Known {
					t.Fatalf("after %s: %+v, want %d, %s", time.Duration(i+1)*period, r, want, phase)
				}
			}

			// Once known again, the offer has to be stable first.
			n.in = Input[units.MilliCPU]{At: n.in.At, Allocatable: 16000, PodsKnown: true, Advertised: n.in.Advertised, Use: Use[units.MilliCPU]{At: n.in.At, Total: 3000}}
			if r := n.advance(2 * time.Minute); r.Advertise != 2000 || !r.Known {
				t.Errorf("advertises %d after two minutes, want 2000 still", r.Advertise)
			}
			if r := n.advance(10 * time.Minute); r.Advertise != 13000 {
				t.Errorf("Decide after ten more minutes = %+v, want 13000", r)
			}
		})
	}
}

// TestDecide_UnknownPods checks that nothing changes while the pods are unknown.
func TestDecide_UnknownPods(t *testing.T) {
	n := newFixture()
	n.advance(15 * time.Minute)

	n.in.PodsKnown = false
	n.in.Use.Total = 16000
	if r := n.advance(time.Hour); r.Advertise != 12000 || r.Phase != Holding || r.NeedsWrite || !strings.Contains(r.Problem, "pods") {
		t.Errorf("Decide without the pods = %+v, want 12000 held", r)
	}

	// A reset by the kubelet is still corrected.
	n.in.Advertised = 0

	if !n.step().NeedsWrite {
		t.Errorf("Decide after a reset by the kubelet = %+v, want a write", n.last)
	}
}

// TestDecide_KubeletReset checks that resources reset by a kubelet are restored at once.
func TestDecide_KubeletReset(t *testing.T) {
	n := newFixture()
	n.advance(15 * time.Minute)

	n.in.Advertised = 0
	if r := n.step(); !r.NeedsWrite || r.Advertise != 12000 {
		t.Errorf("Decide after a reset by the kubelet = %+v, want 12000 written", r)
	}

	// the Node was recreated
	n.in.NotAdvertised = true
	n.in.Advertised = 0
	if r := n.step(); !r.NeedsWrite || r.Advertise != 12000 {
		t.Errorf("Decide of a node that was recreated = %+v, want 12000 written", r)
	}

	// An agent that starts just after the reset advertises what pods hold.
	m := newFixture()

	m.in.Allocated = 4000
	m.in.NotAdvertised = false
	if r := m.step(); !r.NeedsWrite || r.Advertise != 4000 {
		t.Errorf("Decide of a new agent after a reset = %+v, want the 4000 that pods hold written", r)
	}
}

// TestDecide_ClockChange checks that an offer has to become stable again after a clock change or a pause of the process.
func TestDecide_ClockChange(t *testing.T) {
	for name, jump := range map[string]time.Duration{"back": -time.Hour, "on": time.Hour} {
		t.Run(name, func(t *testing.T) {
			n := newFixture()
			n.advance(110 * time.Second)

			n.in.At = n.in.At.Add(jump)
			if r := n.advance(110 * time.Second); r.Advertise != 0 || r.Problem != "" {
				t.Errorf("Decide after the clock jumped = %+v, want nothing advertised and no problem", r)
			}
			if r := n.advance(time.Minute); r.Advertise == 0 {
				t.Errorf("Decide a minute later = %+v, want it to grow", r)
			}
		})
	}

	// A pause does not count as growth.
	n := newFixture()
	n.advance(3 * time.Minute)

	was := n.last.Advertise
	n.in.At = n.in.At.Add(50 * time.Minute)
	if r := n.step(); r.Advertise != was {
		t.Errorf("advertises %d after a pause, want %d as before", r.Advertise, was)
	}
}

// TestDecide_Resume checks that an agent resumes the amount of its predecessor, as far as the offer allows.
func TestDecide_Resume(t *testing.T) {
	for name, c := range map[string]struct {
		was   units.MilliCPU
		ended time.Duration
		want  units.MilliCPU
	}{
		"at once":                {9000, -time.Minute, 9000},
		"as far as there is":     {15000, -time.Minute, 12000},
		"too long ago":           {9000, -11 * time.Minute, 2000},
		"in a future":            {9000, time.Hour, 2000},
		"less than what is held": {1000, -time.Minute, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFixture()
			n.in.Advertised = 2000
			n.in.NotAdvertised = false
			n.in.Allocated = 2000
			n.state.Resume(c.was, start.Add(c.ended), n.policy)

			n.in.Use.At = time.Time{}
			if r := n.decide(); r.Advertise != 2000 {
				t.Errorf("advertises %d with an unknown use, want 2000", r.Advertise)
			}

			n.in.Use.At = n.in.At
			if r := n.decide(); r.Advertise != c.want {
				t.Errorf("advertises %d, want %d", r.Advertise, c.want)
			}
		})
	}
}

// TestAllocatedShare checks that the share is continuous and above 1 exactly with a deficit.
func TestAllocatedShare(t *testing.T) {
	for _, c := range []struct {
		held, offer units.MilliCPU
		want        units.Ratio
	}{{0, 0, 0}, {0, 4000, 0}, {3000, 4000, 0.75}, {4000, 4000, 1}, {6000, 4000, 1.5}, {1000, 0, 2}, {3000, 0, 4}, {1000, 500, 1.5}, {-1000, -1000, 0}} {
		if got := AllocatedShare(c.held, c.offer, 1000); got != c.want {
			t.Errorf("%d of %d: %g, want %g", c.held, c.offer, got, c.want)
		}
	}
}
