// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// randomDay is usage of a day, but for the first sample, with jumps, gaps and values that are no usage.
func randomDay(rng *rand.Rand, step time.Duration) series.Series {
	s := series.Series{Start: firstDay.Start().Add(step), Step: step, Values: make([]float64, int(day/step)-1)}
	jump := func() float64 { return math.Exp(3 * rng.Float64()) }

	level := jump()
	spread := 2 * rng.Float64()
	odd := []float64{math.NaN(), math.Inf(1), -1, 0, 0, 1e-12}
	for i := range s.Values {
		if rng.IntN(100) == 0 {
			level = jump()
		}

		s.Values[i] = level * math.Exp(spread*(rng.Float64()-0.5))
		if rng.IntN(20) == 0 {
			s.Values[i] = odd[rng.IntN(len(odd))]
		}
	}

	return s
}

// simulate returns the samples above a constant request that the reaction raises, and what it adds, by the course that adoption follows.
func simulate(s series.Series, request float64, by Reaction) (above, added float64) {
	c := NewCourse(Plan{Requests: []float64{request}, Block: day, Reaction: &by}, firstDay, s.Step, nil)
	lag := lagOf(by.Delay, s.Step)
	for i, v := range s.Values {
		if i >= lag {
			c.Observe(s.Time(i-lag), s.Values[i-lag])
		}

		if !usable(v) {
			continue
		}

		inForce := c.Request(s.Time(i))
		added += inForce - request

		if v > inForce {
			above++
		}
	}

	return above, added
}

// TestCurveIsTheSimulation checks that a curve has the outcome of a simulation at each of its levels and at lower ones, for steps from 15
// seconds to 7 minutes.
func TestCurveIsTheSimulation(t *testing.T) {
	reaction := *DefaultSettings().Reaction
	for seed := range uint64(12) {
		for _, step := range []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 7 * time.Minute} {
			s := randomDay(rand.New(rand.NewPCG(seed, uint64(step))), step)
			c := NewCurve(s, reaction)
			if c.cut || len(c.points) < 8 {
				t.Fatalf("NewCurve has %d levels, cut %v; want 8 or more, not cut", len(c.points), c.cut)
			}

			for level := c.first - 9; level < c.end()+2; level++ {
				above, added, ok := c.At(requestOf(level))
				wantAbove, wantAdded := simulate(s, requestOf(level), reaction)
				if !ok || math.Abs(above-wantAbove) > 1e-6 || math.Abs(added-wantAdded) > 1e-4*(1+wantAdded) {
					t.Fatalf("seed %d, step %v, level %d of %d to %d: %v above and %v added (%v), want %v and %v as simulated",
						seed, step, level, c.first, c.end(), above, added, ok, wantAbove, wantAdded)
				}
			}
		}
	}
}

// TestCurveAtMidnight checks that usage which begins at midnight is replayed as if the usage before it mirrored that after it.
func TestCurveAtMidnight(t *testing.T) {
	reaction := *DefaultSettings().Reaction
	spared := 0.0
	for _, step := range []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 7 * time.Minute} {
		s := randomDay(rand.New(rand.NewPCG(1, uint64(step))), step).Between(firstDay.Start(), firstDay.Start().Add(20*time.Hour))
		s.Start = firstDay.Start()
		before := lagOf(reaction.Delay, step) + int((reaction.Hold+step-1)/step)
		whole := series.Series{Start: s.Start, Step: step}
		for i := range before {
			whole.Values = append(whole.Values, s.Values[before-1-i])
		}

		whole.Values = append(whole.Values, s.Values...)
		c := NewCurve(s, reaction)
		for level := c.first; level < c.end(); level++ {
			above, added, _ := c.At(requestOf(level))
			all, allAdded := simulate(whole, requestOf(level), reaction)

			first, firstAdded := simulate(whole.Slice(0, before), requestOf(level), reaction)
			if math.Abs(above-all+first) > 1e-6 || math.Abs(added-allAdded+firstAdded) > 1e-4*(1+allAdded) {
				t.Fatalf("step %v, level %d: %v above and %v added, want %v and %v as simulated", step, level, above, added, all-first, allAdded-firstAdded)
			}

			cold, _ := simulate(s, requestOf(level), reaction)
			spared += cold - above
		}
	}

	if spared <= 0 {
		t.Errorf("a raise that holds at midnight spares %v samples, want more than 0", spared)
	}
}

// TestCurvesAddUp checks that the sum of the curves of pods is that of their simulations in each order, also where levels had to be dropped.
func TestCurvesAddUp(t *testing.T) {
	reaction := *DefaultSettings().Reaction
	cut := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		pods := make([]series.Series, 4)
		for i := range pods {
			pods[i] = randomDay(rng, 5*time.Minute)
			scale := math.Exp2(3 * float64(rng.IntN(i+1)))
			for k := range pods[i].Values {
				pods[i].Values[k] *= scale
			}
		}

		var forth, back Curve
		for i := range pods {
			forth.Add(NewCurve(pods[i], reaction))
			back.Add(NewCurve(pods[len(pods)-1-i], reaction))
		}

		if forth.first != back.first || forth.cut != back.cut || len(forth.points) != len(back.points) || len(forth.points) > maxLevels {
			t.Fatalf("seed %d: levels %d to %d (%v), want %d to %d (%v) as in the other order", seed, forth.first, forth.end(), forth.cut, back.first, back.end(), back.cut)
		}

		if forth.cut {
			cut++
		}

		for level := forth.first - 3; level < forth.end()+1; level++ {
			want, wantAdded := 0.0, 0.0
			for _, s := range pods {
				a, b := simulate(s, requestOf(level), reaction)
				want += a
				wantAdded += b
			}

			for _, c := range []*Curve{&forth, &back} {
				above, added, ok := c.At(requestOf(level))
				if ok == (c.cut && level < c.first) {
					t.Fatalf("seed %d, level %d: known is %v with cut %v at %d, want it unknown below a cut only", seed, level, ok, c.cut, c.first)
				}
				if ok && (math.Abs(above-want) > 1e-6 || math.Abs(added-wantAdded) > 1e-4*(1+wantAdded)) {
					t.Fatalf("seed %d, level %d: %v above and %v added, the simulation has %v and %v", seed, level, above, added, want, wantAdded)
				}
			}
		}
	}

	if cut == 0 || cut == 20 {
		t.Errorf("%d of 20 sums had too many levels, want some and not all", cut)
	}
}

// TestCurveOfExactLevels checks that usage above a level by exactly the excess that one sample reacts to is not taken for more.
func TestCurveOfExactLevels(t *testing.T) {
	reaction := *DefaultSettings().Reaction
	s := series.Series{Start: firstDay.Start().Add(time.Minute), Step: time.Minute, Values: make([]float64, 600)}
	for i := range s.Values {
		if i%10 == 0 {
			s.Values[i] = bigExcess
		}
	}

	c := NewCurve(s, reaction)
	for level := int32(-20); level < 5; level++ {
		above, added, ok := c.At(requestOf(level))
		if want, wantAdded := simulate(s, requestOf(level), reaction); !ok || above != want || math.Abs(added-wantAdded) > 1e-3 {
			t.Errorf("level %d: %v above and %v added (%v), the simulation has %v and %v", level, above, added, ok, want, wantAdded)
		}
	}
}

// TestCurveBetweenLevels checks that a request between two levels has an outcome between theirs.
func TestCurveBetweenLevels(t *testing.T) {
	c := NewCurve(randomDay(rand.New(rand.NewPCG(1, 1)), time.Minute), *DefaultSettings().Reaction)
	differing := 0
	for level := c.first; level < c.end(); level++ {
		low, lowAdded, _ := c.At(requestOf(level))
		middle, added, _ := c.At(math.Sqrt(requestOf(level) * requestOf(level+1)))
		high, highAdded, _ := c.At(requestOf(level + 1))
		if math.Abs(middle-(low+high)/2) > 1e-6 || math.Abs(added-(lowAdded+highAdded)/2) > 1e-6*added {
			t.Errorf("At between two levels = %v and %v, want the middle of %v and %v, %v and %v", middle, added, low, high, lowAdded, highAdded)
		}
		if low != high {
			differing++
		}
	}

	if differing < 5 {
		t.Errorf("%d pairs of levels differ, want 5 or more", differing)
	}
}

func TestCurveOfOddUsage(t *testing.T) {
	reaction := *DefaultSettings().Reaction
	for name, values := range map[string][]float64{
		"nothing": nil, "zeros": {0, 0, 0}, "gaps": {math.NaN(), math.NaN()}, "no usage": {-1, math.Inf(1), 5e-324},
	} {
		c := NewCurve(series.Series{Start: firstDay.Start(), Step: time.Minute, Values: values}, reaction)
		if above, added, ok := c.At(0.001); above != 0 || added != 0 || !ok {
			t.Errorf("%s: At(0.001) = %v, %v, %v; want 0, 0, true", name, above, added, ok)
		}
	}

	wide := NewCurve(series.Series{Start: firstDay.Start().Add(time.Minute), Step: time.Minute, Values: []float64{1e-6, 1, math.MaxFloat32}}, reaction)
	if _, _, ok := wide.At(1); ok || len(wide.points) != maxLevels {
		t.Errorf("a wide curve has %d levels and knows one far below: %v, want %d and false", len(wide.points), ok, maxLevels)
	}
	if above, _, ok := wide.At(math.MaxFloat32 / 2); !ok || above == 0 {
		t.Errorf("At(half of the highest) = %v, %v; want samples above", above, ok)
	}
}

// TestCurveCheckpoint checks that a stored curve is read as it was, and that a damaged one is an error or has bounded values.
func TestCurveCheckpoint(t *testing.T) {
	reaction := *DefaultSettings().Reaction
	c := NewCurve(randomDay(rand.New(rand.NewPCG(8, 1)), time.Minute), reaction)

	data := c.Append(nil)
	read, err := ParseCurve(data)
	if err != nil || fmt.Sprint(*read) != fmt.Sprint(*c) {
		t.Fatalf("%v, %v\nwant %v", read, err, c)
	}

	for _, bad := range [][]byte{nil, {2, 0, 0}, {0}, {0, 0}, {1, 0, 0}, data[:len(data)-1], append(data[:len(data):len(data)], make([]byte, 5*maxLevels)...)} {
		if _, err := ParseCurve(bad); err == nil {
			t.Errorf("ParseCurve of %d bytes succeeded, want an error", len(bad))
		}
	}
}

func FuzzParseCurve(f *testing.F) {
	f.Add(NewCurve(randomDay(rand.New(rand.NewPCG(8, 2)), 5*time.Minute), *DefaultSettings().Reaction).Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCurve(data)
		if err != nil {
			return
		}

		var sum Curve
		sum.Add(c)
		sum.Add(NewCurve(series.Series{Start: firstDay.Start(), Step: time.Minute, Values: []float64{1, 2, 3}}, *DefaultSettings().Reaction))

		for _, request := range []float64{1e-9, 0.5, 2, 1e9} {
			if above, added, _ := sum.At(request); !(above >= 0) || !(added >= 0) || math.IsInf(added, 0) {
				t.Fatalf("At(%v) = %v, %v; want finite values of 0 or more", request, above, added)
			}
		}
	})
}

// BenchmarkCurve measures a day of one pod.
func BenchmarkCurve(b *testing.B) {
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute} {
		b.Run(step.String(), func(b *testing.B) {
			s := noisy(1, step, 1, 3)
			b.ReportAllocs()

			for b.Loop() {
				NewCurve(s, *DefaultSettings().Reaction)
			}
		})
	}
}
