// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

var firstDay = series.DayOf(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC))

// days returns usage of whole days at a step.
func days(n int, step time.Duration, f func(minute int) float64) series.Series {
	s := series.Series{Start: firstDay.Start(), Step: step, Values: make([]float64, n*int(day/step))}
	for i := range s.Values {
		s.Values[i] = f(i * int(step/time.Minute))
	}

	return s
}

// noisy is usage with a daily cycle and bursts.
func noisy(n int, step time.Duration, seed uint64, burst float64) series.Series {
	rng := rand.New(rand.NewPCG(seed, 7))
	return days(n, step, func(minute int) float64 {
		v := (2 - math.Cos(2*math.Pi*float64(minute)/1440)) * math.Exp(0.15*rng.NormFloat64())
		if rng.Float64() < 0.003 {
			v *= burst
		}

		return v
	})
}

// learn adds all days of the series of pods.
func learn(m *Model, pods ...series.Series) series.Day {
	last := firstDay
	for date := range pods[0].Days() {
		var use []PodUsage
		for i, s := range pods {
			use = append(use, PodUsage{Pod: string(rune('a' + i)), Series: s.Between(date.Start(), date.End())})
		}

		m.AddDay(date, use)
		last = date
	}

	return last + 1
}

func mustPlan(t *testing.T, m *Model, date series.Day) Plan {
	t.Helper()

	p, err := m.Plan(date)
	if err != nil {
		t.Fatal(err)
	}

	for _, v := range p.Requests {
		if !(v > 0) || math.IsInf(v, 0) {
			t.Fatalf("Plan requests %v, want finite requests above 0", p.Requests)
		}
	}

	return p
}

func TestConstantUsageNeedsNoMargin(t *testing.T) {
	m := New(DefaultSettings())
	p := mustPlan(t, m, learn(m, days(14, 5*time.Minute, func(int) float64 { return 3 })))
	for _, v := range p.Requests {
		if v < 3 || v > 3*1.1 {
			t.Errorf("Plan requests %v for a constant usage of 3, want 3 to 3.3", v)
		}
	}

	if !p.Met() || p.Achieved != 0 || p.Days != 14-minReplay {
		t.Errorf("calibration %+v, want the target met at 0 in %d days", p.Calibration, 14-minReplay)
	}
}

// TestPlan_ReplayMatchesCourse follows the chosen multiplier day by day with the course that production follows, and expects the share of
// the time above the request that the calibration reports.
func TestPlan_ReplayMatchesCourse(t *testing.T) {
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute} {
		for _, settings := range []Settings{DefaultSettings(), ConstantSettings()} {
			s := noisy(12, step, 3, 4)
			m := New(settings)
			c := mustPlan(t, m, learn(m, s)).Calibration

			replay := New(settings)
			var course *Course
			above, samples := 0, 0
			for date, part := range s.Days() {
				if shape := replay.shape(); shape != nil {
					p := Plan{Block: settings.Block, Reaction: settings.Reaction}
					for i := range replay.blocks {
						base := shape[i]
						if c.WholeDay {
							base = shape[replay.blocks]
						}

						p.Requests = append(p.Requests, c.Multiplier*base)
					}

					course = NewCourse(p, date, step, course)
					a, n := follow(course, part)
					above += a
					samples += n
				}

				replay.AddDay(date, []PodUsage{{Pod: "a", Series: part}})
			}

			if got := float64(above) / float64(samples); math.Abs(got-float64(c.Achieved)) > 1e-12 {
				t.Errorf("step %v, block %v: %v above the request, want %v as in the replay", step, settings.Block, got, c.Achieved)
			}
		}
	}
}

// follow plays a day with the delay of the reaction and counts samples above the request.
func follow(c *Course, s series.Series) (above, samples int) {
	lag := lagOf(2*time.Minute, s.Step)
	for i, v := range s.Values {
		if i >= lag {
			c.Observe(s.Time(i-lag), s.Values[i-lag])
		}

		samples++
		if v > c.Request(s.Time(i)) {
			above++
		}
	}

	for i := max(0, len(s.Values)-lag); i < len(s.Values); i++ {
		c.Observe(s.Time(i), s.Values[i])
	}

	return above, samples
}

// TestTargetsAreOrdered checks that a stricter target never has more time above the request in the replay.
func TestTargetsAreOrdered(t *testing.T) {
	for seed := range uint64(6) {
		before := 1.0
		for _, target := range []units.Ratio{0.02, 0.01, 0.005, 0.0025} {
			settings := DefaultSettings()
			settings.Target = target
			m := New(settings)

			p := mustPlan(t, m, learn(m, noisy(14, 5*time.Minute, seed, 2)))
			if float64(p.Achieved) > max(float64(target), before) {
				t.Errorf("seed %d: target %v has %v above, want at most the target or the %v of a laxer one", seed, target, p.Achieved, before)
			}

			before = float64(p.Achieved)
		}
	}
}

// TestReactionIsCalibrated checks that the same usage needs a higher request where nothing reacts, since usage doubles for hours.
func TestReactionIsCalibrated(t *testing.T) {
	use := days(14, 5*time.Minute, func(minute int) float64 {
		if d := minute / 1440; d%3 == 1 && minute%1440 > 100*(d%7) && minute%1440 < 100*(d%7)+120 {
			return 2
		}

		return 1
	})

	with := New(DefaultSettings())
	reacting := mustPlan(t, with, learn(with, use))
	settings := DefaultSettings()
	settings.Reaction = nil
	without := New(settings)

	alone := mustPlan(t, without, learn(without, use))
	if !reacting.Met() || reacting.Requests[4] > 1.5 || alone.Requests[4] < 1.9 {
		t.Errorf("requests %v with the reaction (%v above) and %v without (%v above), want 1.5 or less and 1.9 or more in block 4", reacting.Requests, reacting.Achieved, alone.Requests, alone.Achieved)
	}
}

// TestMissedTargetIsReported checks that a target that no multiplier meets is not claimed to be met.
// TestNewestDaysFollowALevel checks that usage which fell to a tenth is sized by the newest days, and steady usage by all days.
func TestNewestDaysFollowALevel(t *testing.T) {
	fell := days(20, time.Minute, func(minute int) float64 {
		if minute < 12*1440 {
			return 10
		}

		return 1
	})

	constant := ConstantSettings()
	constant.Newest = 3
	for _, settings := range []Settings{DefaultSettings(), constant} {
		m := New(settings)
		p := mustPlan(t, m, learn(m, fell))
		if p.NewestDays != 3 || p.Requests[0] > 1.2 || !p.Met() {
			t.Errorf("blocks of %v: %v by the newest %d days, %v above the request; want at most 1.2 by 3 days and the target met", settings.Block, p.Requests[0], p.NewestDays, p.Achieved)
		}

		m = New(settings)
		if p := mustPlan(t, m, learn(m, noisy(20, time.Minute, 3, 1))); p.NewestDays != 0 {
			t.Errorf("blocks of %v: steady usage is sized by the newest %d days, want 0: all days", settings.Block, p.NewestDays)
		}
	}
}

func TestMissedTargetIsReported(t *testing.T) {
	m := New(ConstantSettings())
	// Each day is four times the one before.
	p := mustPlan(t, m, learn(m, days(9, 5*time.Minute, func(minute int) float64 { return math.Pow(4, float64(minute/1440)) })))
	if p.Met() || p.Achieved != 1 {
		t.Errorf("usage that only grows: %+v, want a missed target with all of the time above", p.Calibration)
	}
}

func TestShortAndIdleHistory(t *testing.T) {
	m := New(DefaultSettings())
	date := learn(m, days(6, 5*time.Minute, func(int) float64 { return 1 }))
	if _, err := m.Plan(date); !errors.Is(err, ErrShortHistory) {
		t.Errorf("Plan after six days: error %v, want ErrShortHistory", err)
	}

	idle := New(DefaultSettings())
	date = learn(idle, days(14, 5*time.Minute, func(int) float64 { return 0 }))
	if _, err := idle.Plan(date); !errors.Is(err, ErrIdle) {
		t.Errorf("Plan of idle days: error %v, want ErrIdle", err)
	}
	if _, err := m.Plan(date + 100); !errors.Is(err, ErrShortHistory) {
		t.Errorf("Plan of a day long after: error %v, want ErrShortHistory", err)
	}
}

// TestSketchesAreReplayedAsSamples checks that sketches of days give the same calibration as samples where nothing reacts, to the width
// of a bucket.
func TestSketchesAreReplayedAsSamples(t *testing.T) {
	s := noisy(14, 5*time.Minute, 9, 2)
	samples := New(ConstantSettings())
	sketches := New(ConstantSettings())
	date := learn(samples, s)

	for d, part := range s.Days() {
		var c histogram.Counts
		for _, v := range part.Values {
			c.Add(v)
		}
		sketches.AddSketch(d, &c, nil)
	}

	a := mustPlan(t, samples, date)
	b := mustPlan(t, sketches, date)
	if math.Abs(a.Requests[0]/b.Requests[0]-1) > 0.09 || math.Abs(float64(a.Achieved-b.Achieved)) > 0.002 {
		t.Errorf("sketches: %v (%v above), want about %v (%v above) as of samples", b.Requests, b.Achieved, a.Requests, a.Achieved)
	}
}

// TestCurvesAreReplayedAsSamples checks that curves of days give nearly the same calibration as samples with the reaction: raises end at
// midnight, and a curve has 8 requests for each doubling.
func TestCurvesAreReplayedAsSamples(t *testing.T) {
	settings := ConstantSettings()
	settings.Reaction = DefaultSettings().Reaction
	for seed := range uint64(8) {
		s := noisy(14, 5*time.Minute, seed, 1+float64(seed)/2)
		samples := New(settings)
		sketches := New(settings)
		date := learn(samples, s)

		for d, part := range s.Days() {
			var c histogram.Counts
			for _, v := range part.Values {
				c.Add(v)
			}
			sketches.AddSketch(d, &c, NewCurve(part, *settings.Reaction))
		}

		a := mustPlan(t, samples, date).Calibration
		b := mustPlan(t, sketches, date).Calibration
		if !a.Reaction || !b.Reaction || len(a.Points) != len(b.Points) {
			t.Fatalf("samples %+v\nsketches %+v\nwant the same points with the reaction", a, b)
		}

		for i := range a.Points {
			p := a.Points[i]
			q := b.Points[i]
			if math.Abs(float64(p.Violation-q.Violation)) > max(0.003, 0.15*float64(p.Violation)) || math.Abs(p.Request/q.Request-1) > 0.04 {
				t.Errorf("seed %d, factor %v: sketches %+v, want about %+v as of samples", seed, p.Multiplier, q, p)
			}
		}
	}
}

// TestIndependentOfUnit checks that usage in another unit scales the requests and changes nothing else.
func TestIndependentOfUnit(t *testing.T) {
	s := noisy(14, 5*time.Minute, 5, 3)
	scaled := series.Series{Start: s.Start, Step: s.Step, Values: make([]float64, len(s.Values))}
	for i, v := range s.Values {
		scaled.Values[i] = 1024 * v
	}

	unscaled := New(DefaultSettings())
	other := New(DefaultSettings())

	a := mustPlan(t, unscaled, learn(unscaled, s))
	b := mustPlan(t, other, learn(other, scaled))
	for i := range a.Requests {
		if math.Abs(b.Requests[i]/a.Requests[i]/1024-1) > 1e-6 {
			t.Errorf("block %d: %v for usage times 1024, want 1024 times %v", i, b.Requests[i], a.Requests[i])
		}
	}
}

// TestPodsReactAlone checks that the raise of one pod does not count for another.
func TestPodsReactAlone(t *testing.T) {
	busy := days(14, 5*time.Minute, func(minute int) float64 {
		if minute/1440 == 13 {
			return 5
		}

		return 1
	})

	quiet := days(14, 5*time.Minute, func(int) float64 { return 1 })
	m := New(DefaultSettings())

	p := mustPlan(t, m, learn(m, busy, quiet))
	if p.Achieved == 0 || p.Achieved > 0.01 {
		t.Errorf("%v above the request, want the first sample of each raise of one of two pods", p.Achieved)
	}
}

// FuzzModel checks that hostile usage does not lead to requests that are not finite and above zero.
func FuzzModel(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint8(5), true)
	f.Add([]byte{0, 0, 255, 254, 253}, uint8(1), false)
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 5e-324, math.MaxFloat64, math.MaxFloat32}

	f.Fuzz(func(t *testing.T, data []byte, minutes uint8, reacts bool) {
		if len(data) == 0 {
			return
		}

		settings := ConstantSettings()
		if reacts {
			settings = DefaultSettings()
		}

		step := time.Duration(1+minutes) * time.Minute
		m := New(settings)
		var course *Course
		for d := range 10 {
			date := firstDay + series.Day(d)
			s := series.Series{Start: date.Start().Add(time.Duration(data[0]) * time.Second), Step: step}
			for i := range int(day / step) {
				b := data[(i+d)%len(data)]
				v := float64(b)
				if int(b) >= 256-len(odd) {
					v = odd[255-b]
				}

				s.Values = append(s.Values, v)
			}

			p, err := m.Plan(date)
			if err == nil {
				course = NewCourse(p, date, step, course)
				for i, v := range s.Values {
					if request := course.Request(s.Time(i)); !(request > 0) || math.IsInf(request, 0) {
						t.Fatalf("Request(%v) = %v, want a finite request above 0", s.Time(i), request)
					}

					course.Observe(s.Time(i), v)
				}

				if !(p.Achieved >= 0 && p.Achieved <= 1) {
					t.Fatalf("calibration %+v, want a share of 0 to 1 above the request", p.Calibration)
				}
			} else if !errors.Is(err, ErrShortHistory) && !errors.Is(err, ErrIdle) {
				t.Fatal(err)
			}

			m.AddDay(date, []PodUsage{{Pod: "a", Series: s}, {Pod: "b", Series: s}, {Pod: "none"}})
		}
	})
}

// BenchmarkNightlyReplay measures a nightly replay of one container: a day of samples added, and the plan of the next.
func BenchmarkNightlyReplay(b *testing.B) {
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute} {
		b.Run(step.String(), func(b *testing.B) {
			s := noisy(14, step, 1, 3)
			m := New(DefaultSettings())
			date := learn(m, s)
			last := s.Between((date - 1).Start(), date.Start())
			b.ReportAllocs()

			for b.Loop() {
				last.Start = date.Start()
				m.AddDay(date, []PodUsage{{Pod: "a", Series: last}})

				date++
				if _, err := m.Plan(date); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestMissedTargetStaysNearTheUsage checks that a jump, before which no multiplier met the target, does not lead to a multiple of the level
// after it.
func TestMissedTargetStaysNearTheUsage(t *testing.T) {
	const jump, highest = 5, 15
	m := New(ConstantSettings())
	p := mustPlan(t, m, learn(m, days(12, 5*time.Minute, func(minute int) float64 {
		use := 2 - math.Cos(2*math.Pi*float64(minute)/1440)
		if minute >= 9*1440 {
			use *= jump
		}

		return use
	})))

	if p.Met() || p.Requests[0] < highest || p.Requests[0] > 1.1*highest {
		t.Errorf("request %v with the factor %v, want a missed target with %v to 1.1 times that", p.Requests[0], p.Multiplier, highest)
	}

	for _, point := range p.Points {
		if point.Multiplier == p.Multiplier && point.Violation != p.Achieved {
			t.Errorf("Achieved = %v, want the %v of the chosen point", p.Achieved, point.Violation)
		}
	}
}
