// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// TestGateWeights checks that the weights are those of the present experts and as they were written.
func TestGateWeights(t *testing.T) {
	networks := shippedGate()
	if len(networks) != gateNetworks {
		t.Fatalf("%d weights, want those of %d networks of %d units with %d inputs: run hack/train-gate.sh", len(gateWeights), gateNetworks,
			gateUnits, unitSize())
	}

	if got := gateChecksum(gateWeights); got != gateWeightsChecksum {
		t.Errorf("the checksum of experts and weights is %08x, want %08x: run hack/train-gate.sh", got, uint32(gateWeightsChecksum))
	}

	for i, v := range gateWeights {
		if v-v != 0 || max(v, -v) > 100 {
			t.Errorf("weight %d is %v, want -100 to 100", i, v)
		}
	}

	file, err := os.ReadFile("gate_weights.go")
	if err != nil {
		t.Fatal(err)
	}

	if formatGate(networks) != string(file) {
		t.Error("gate_weights.go differs, want what hack/train-gate.sh writes")
	}
}

// TestGateFallsBack checks that the hedge decides alone where the gate has too little to read.
func TestGateFallsBack(t *testing.T) {
	regular := history(t, "weekday and weekend").Values
	days := func(n int, value func(i int) float64) series.Series {
		s := series.Series{Start: monday, Step: time.Minute, Values: make([]float64, n*24*60)}
		for i := range s.Values {
			s.Values[i] = value(i)
		}

		return s
	}

	load := func(i int) float64 { return regular[i] }
	for name, c := range map[string]struct {
		history series.Series
		gated   bool
	}{
		"two weeks":    {days(14, load), true},
		"a week":       {days(7, load), true},
		"six days":     {days(6, load), false},
		"three days":   {days(3, load), false},
		"half a day":   {series.Series{Start: monday, Step: time.Minute, Values: regular[:720]}, false},
		"all the same": {days(14, func(int) float64 { return 3 }), false},
		"zeros":        {days(14, func(int) float64 { return 0 }), false},
		"one sample": {days(14, func(i int) float64 {
			if i == 20000 {
				return 1
			}

			return series.Gap()
		}), false},
		"the newest day is missing": {days(14, func(i int) float64 {
			if i > 13*1440 && i < 14*1440-1 {
				return series.Gap()
			}

			return regular[i]
		}), false},
	} {
		_, _, rows := rowsOf(c.history)
		o := newOutlook(rows, 1)

		hedge := newHedge(o, defaultTuning(), nil)
		gated := newHedge(o, defaultTuning(), shippedGate())
		differs := false
		for s := range segmentCount {
			sum := 0.0
			for e, w := range gated.gated[s] {
				sum += w
				differs = differs || w != hedge.weights[s][0][e]
			}

			if math.Abs(sum-1) > 1e-6 {
				t.Errorf("%s: the weights of segment %d sum to %v, want 1", name, s, sum)
			}
			if !slices.Equal(hedge.weights[s][1], gated.weights[s][1]) {
				t.Errorf("%s: the gate changes the weights for the upper quantiles, want them as without it", name)
			}
		}

		if differs != c.gated {
			t.Errorf("%s: the gate changes the weights: %v, want %v", name, differs, c.gated)
		}

		slots := rows.slots
		before := hedge.day(0)
		after := gated.day(0)
		for i, v := range after[slots:] {
			if before := before[slots+i]; v != before && v == v {
				t.Fatalf("%s: the gate changes an upper quantile to %v, want %v", name, v, before)
			}
		}

		if hedge.skill != gated.skill && !math.IsNaN(hedge.skill) || hedge.width != gated.width {
			t.Errorf("%s: skill %v and width %v with the gate, want %v and %v", name, gated.skill, gated.width, hedge.skill, hedge.width)
		}
	}
}

// TestGateMovesHalfTheWeight checks the mean of hedge and networks with networks that know one expert only.
func TestGateMovesHalfTheWeight(t *testing.T) {
	_, _, rows := rowsOf(history(t, "daily"))
	o := newOutlook(rows, 1)
	const id = 3
	e := medianExperts()[id]
	n := network{hidden: 1, weights: make([]float32, unitSize()+1)}
	n.weights[gateScalars+id], n.weights[unitSize()] = 1e6, 100

	hedge := newHedge(o, defaultTuning(), nil)
	gated := newHedge(o, defaultTuning(), []network{n, n})
	for s := range segmentCount {
		own := hedge.weights[s][0][e]
		got := gated.gated[s][e]
		if want := (own + 1) / 2; math.Abs(got-want) > 1e-3 {
			t.Errorf("segment %d: expert %q weighs %v, want %v", s, o.experts[e].name, got, want)
		}
	}

	before := hedge.day(0)
	after := gated.day(0)
	far := [2]float64{}
	for x, v := range o.days[e][0] {
		far[0] += math.Abs(float64(before[x] - v))
		far[1] += math.Abs(float64(after[x] - v))
	}

	if far[1] > far[0]*0.7 {
		t.Errorf("the median is %v from the expert, want at most 0.7 of the %v without the gate", far[1], far[0])
	}
	if !slices.Equal(hedge.day(1), gated.day(1)) {
		t.Error("the gate, which was trained on the first day, changes the second, want it unchanged")
	}
}

// TestGateIgnoresTheUnit checks that the inputs do not depend on the first sample, which values are stored relative to.
func TestGateIgnoresTheUnit(t *testing.T) {
	read := func(by float64) [segmentCount][]gateInputs {
		s := families.Random(4, 15, 5*time.Minute)
		s.Values[0] = by // older than the history that is kept
		_, _, rows := rowsOf(s)

		o := newOutlook(rows, 1)
		in, ok := newHedge(o, defaultTuning(), nil).readGate(defaultTuning(), o.replayLosses())
		if !ok {
			t.Fatal("readGate = false, want the inputs of the gate")
		}

		return in
	}

	unscaled := read(1)
	other := read(1e6)
	for s := range unscaled {
		for i := range unscaled[s] {
			for k := range unscaled[s][i] {
				if d := unscaled[s][i][k] - other[s][i][k]; max(d, -d) > 0.01 {
					t.Errorf("segment %d, expert %d, input %d: %v, want about %v", s, i, k, other[s][i][k], unscaled[s][i][k])
				}
			}
		}
	}
}

// TestGateGradient compares the derivatives that training uses with differences of the loss.
func TestGateGradient(t *testing.T) {
	s := families.Random(8, 15, 30*time.Minute)
	origins := gateOrigins(s, 1)
	if len(origins) == 0 {
		t.Fatal("gateOrigins = none, want origins")
	}

	o := origins[0]
	r := rand.New(rand.NewPCG(1, 1))
	n := network{hidden: 3, weights: make([]float32, 3*(unitSize()+1))}
	for i := range n.weights {
		n.weights[i] = float32(r.NormFloat64())
	}

	const segment = segmentCount - 1
	loss := func() float64 {
		weights := make([]float64, len(o.in[segment]))
		n.weigh(o.hedge[segment], o.in[segment], make([]float32, n.hidden), weights)

		for i := range weights {
			weights[i] = gateBlend*weights[i] + (1-gateBlend)*o.hedge[segment][i]
		}

		return o.loss(segment, weights, 1, 0, make([]float64, len(weights)))
	}

	gradient := make([]float32, len(n.weights))
	n.learn(gateItem{&o, 1}, segment, r, gradient)

	steepest := 0.0
	for _, g := range gradient {
		steepest = max(steepest, math.Abs(float64(g)))
	}

	if steepest == 0 {
		t.Fatal("all derivatives are 0, want some that are not")
	}

	for i := range n.weights {
		const step = 1.0 / 64
		before := n.weights[i]
		n.weights[i] = before + step
		up := loss()
		n.weights[i] = before - step
		down := loss()
		n.weights[i] = before

		if got, want := float64(gradient[i]), (up-down)/(2*step); math.Abs(got-want) > 0.05*steepest {
			t.Errorf("weight %d: derivative %v, differences give %v", i, got, want)
		}
	}
}
