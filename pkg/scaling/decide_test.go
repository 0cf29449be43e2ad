// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func noon() time.Time { return time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC) }

// runLoop runs an HPA that gets a proposal every 15 s and returns its replicas.
func runLoop(t *testing.T, b Behavior, bounds Bounds, start int32, asked ...int32) []int32 {
	t.Helper()

	var h History
	current := start
	out := []int32(nil)
	for i, n := range asked {
		now := noon().Add(time.Duration(i) * 15 * time.Second)
		d, err := Decide(&h, b, bounds, now, current, []Proposal{{Metric: "cpu", Replicas: n}})
		if err != nil {
			t.Fatal(err)
		}

		h.RecordScaling(b, now, current, d.Replicas)
		current = d.Replicas
		out = append(out, current)
	}

	return out
}

func equal(t *testing.T, name string, got, want []int32) {
	t.Helper()

	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: %v, want %v", name, got, want)
			return
		}
	}
}

func TestDecideBehavior(t *testing.T) {
	wide := Bounds{Min: 1, Max: 1000}
	standard := DefaultBehavior(300 * time.Second)
	equal(t, "up at once to 4 or the double", runLoop(t, standard, wide, 1, 100, 100, 100, 100), []int32{4, 8, 16, 32})
	equal(t, "down only when the window forgot", runLoop(t, DefaultBehavior(30*time.Second), wide, 10, 10, 4, 4, 4), []int32{10, 10, 10, 4})
	equal(t, "bounds", runLoop(t, standard, Bounds{Min: 3, Max: 8}, 5, 100, 0), []int32{8, 8})

	slow := Behavior{Down: DirectionRules{Policies: []RatePolicy{{Pods: 1, Period: time.Minute}}}}
	equal(t, "one pod a minute", runLoop(t, slow, wide, 10, 1, 1, 1, 1, 1), []int32{9, 9, 9, 9, 8})
	equal(t, "the replicas at the start count for a window", runLoop(t, DefaultBehavior(45*time.Second), wide, 10, 3, 3, 3, 3, 3), []int32{10, 10, 10, 10, 3})
	fixed := Behavior{Up: DirectionRules{Select: SelectDisabled}, Down: DirectionRules{Select: SelectDisabled}}
	equal(t, "disabled", runLoop(t, fixed, wide, 10, 100, 1), []int32{10, 10})
	careful := Behavior{Up: DirectionRules{StabilizationWindow: time.Minute}}
	equal(t, "up to the least of a minute", runLoop(t, careful, wide, 2, 2, 9, 8, 7, 9), []int32{2, 2, 2, 2, 7})
	least := Behavior{Up: DirectionRules{Select: SelectMin, Policies: []RatePolicy{{Pods: 4, Period: 15 * time.Second}, {Percent: 10, Period: 15 * time.Second}}}}
	equal(t, "the smaller of two policies", runLoop(t, least, wide, 10, 100, 100), []int32{11, 13})
}

func TestDecideMetrics(t *testing.T) {
	none := errors.New("gone")
	bounds := Bounds{Min: 1, Max: 50}
	for _, c := range []struct {
		name      string
		current   int32
		proposals []Proposal
		want      int32
		winner    string
		err       string
	}{
		{"the highest wins", 5, []Proposal{{Metric: "cpu", Replicas: 6}, {Metric: "rps", Replicas: 8}}, 8, "rps", ""},
		{"one gone, up", 5, []Proposal{{Metric: "cpu", Err: none}, {Metric: "rps", Replicas: 8}}, 8, "rps", ""},
		{"one gone, never down", 5, []Proposal{{Metric: "cpu", Err: none}, {Metric: "rps", Replicas: 2}}, 5, "", "cpu: gone"},
		{"one gone, and the other is content", 5, []Proposal{{Metric: "cpu", Err: none}, {Metric: "rps", Replicas: 5}}, 5, "rps", ""},
		{"all gone", 5, []Proposal{{Metric: "cpu", Err: none}}, 5, "", "cpu: gone"},
		{"none at all", 5, nil, 5, "", ErrNoMetric.Error()},
		{"switched off", 0, []Proposal{{Metric: "cpu", Replicas: 6}}, 0, "", ErrDisabled.Error()},
		{"above the maximum", 60, nil, 50, "", ""},
	} {
		d, err := Decide(&History{}, DefaultBehavior(0), bounds, noon(), c.current, c.proposals)
		if d.Replicas != c.want || d.Winner != c.winner || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: Decide = %+v, %v, want %d by %q, error %q", c.name, d, err, c.want, c.winner, c.err)
		}
	}

	if _, err := Decide(&History{}, Behavior{}, Bounds{Min: 5, Max: 2}, noon(), 3, nil); err == nil || !strings.Contains(err.Error(), "maxReplicas 2") {
		t.Errorf("Decide with a minimum above the maximum: %v, want an error about maxReplicas", err)
	}
}

// TestDecide_FromZero checks that an HPA leaves 0 replicas only where it has removed the others itself: a person who scales to 0 switches it off.
func TestDecide_FromZero(t *testing.T) {
	proposals := []Proposal{{Metric: "queue", Replicas: 6}}
	for _, behavior := range []Behavior{DefaultBehavior(0), {Up: DirectionRules{Policies: []RatePolicy{{Pods: 1, Period: time.Minute}}}}} {
		for _, c := range []struct {
			name       string
			minimum    int32
			changes    [][2]int32 // of the HPA, from and to
			isDisabled bool
		}{
			{"no change", 0, nil, true},
			{"another change", 0, [][2]int32{{5, 3}}, true},
			{"its own change", 0, [][2]int32{{5, 0}}, false},
			{"its own change before another minimum", 3, [][2]int32{{5, 0}}, false},
			{"a change after its own", 0, [][2]int32{{5, 0}, {2, 3}}, true},
		} {
			h := &History{}
			for _, change := range c.changes {
				h.RecordScaling(behavior, noon().Add(-time.Hour), change[0], change[1])
			}

			d, err := Decide(h, behavior, Bounds{Min: c.minimum, Max: 50}, noon(), 0, proposals)
			if errors.Is(err, ErrDisabled) != c.isDisabled || (d.Replicas == 0) != c.isDisabled || d.Replicas > 0 && d.Replicas < c.minimum {
				t.Errorf("%s: Decide at 0 replicas with a minimum of %d = %+v, %v, want it disabled: %v", c.name, c.minimum, d, err, c.isDisabled)
			}
		}
	}
}

// TestDecideStaysWithinBounds checks with random proposals that replicas stay within bounds and rates, and the history within its
// windows.
func TestDecideStaysWithinBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := DefaultBehavior(time.Minute)

	bounds := Bounds{Min: 2, Max: 40}
	var h History
	current := int32(2)
	for i := range 5000 {
		now := noon().Add(time.Duration(i) * 15 * time.Second)
		d, err := Decide(&h, b, bounds, now, current, []Proposal{{Metric: "cpu", Replicas: r.Int32N(100)}})
		if err != nil || d.Replicas < bounds.Min || d.Replicas > bounds.Max || d.Replicas > max(2*current, 4) {
			t.Fatalf("step %d: from %d to %+v, %v, want 2 to 40 replicas and at most twice or 4", i, current, d, err)
		}

		h.RecordScaling(b, now, current, d.Replicas)
		current = d.Replicas

		if changes := len(h.added) + len(h.removed); len(h.recommendations) > 6 || changes > 0 {
			t.Fatalf("step %d: %d recommendations and %d changes are kept, want at most the 6 of a minute and no change", i, len(h.recommendations), changes)
		}
	}
}
