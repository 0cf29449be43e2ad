// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func hotRanges() []HotRange {
	return []HotRange{{Range: 5 * time.Minute, Count: 5}, {Range: time.Minute, Count: 2}}
}

func TestBinds_Windows(t *testing.T) {
	b := NewBinds(hotRanges())
	b.Add("a", "n1", at(0), at(0))
	b.Add("b", "n1", at(30), at(30))
	b.Add("b", "n1", at(40), at(40)) // Added again: it keeps its time.
	b.Add("c", "n2", at(30), at(30))

	for _, c := range []struct {
		now  int
		want []int64
	}{
		{30, []int64{2, 2}},
		{59, []int64{2, 2}},
		{60, []int64{2, 1}},
		{90, []int64{2, 0}},
		{299, []int64{2, 0}},
		{300, []int64{1, 0}},
		{330, []int64{0, 0}},
	} {
		if got := b.Count("n1", at(c.now)); !slices.Equal(got, c.want) {
			t.Errorf("at %d s: %v, want %v", c.now, got, c.want)
		}
	}

	if len(b.pods) != 1 {
		t.Errorf("%d pods are kept, want only that of n2", len(b.pods))
	}
}

func TestBinds_MoveAndRemove(t *testing.T) {
	b := NewBinds(hotRanges())
	b.Add("a", "n1", at(0), at(0))
	b.Add("b", "n1", at(0), at(0))
	b.Add("a", "n2", at(1), at(1))

	if got := b.Count("n1", at(2)); got[0] != 1 {
		t.Errorf("Count of n1 after one of two pods moved = %v, want 1", got)
	}

	b.Remove("b")
	b.Remove("b")
	b.Remove("a")

	if got := b.Count("n2", at(2)); got[0] != 0 || len(b.pods) != 0 || len(b.nodes) != 0 {
		t.Errorf("after all pods are removed: count %v, %d pods, %d nodes, want none", got, len(b.pods), len(b.nodes))
	}

	b.Add("old", "n1", at(-400), at(0))
	if len(b.pods) != 0 {
		t.Errorf("%d pods are counted, want none that is older than every range", len(b.pods))
	}
}

// TestBinds_Random compares with a full recount of the placements, in any order of arrival.
func TestBinds_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := NewBinds(hotRanges())
	alive := map[string]int{}

	now := 0
	for i := range 20000 {
		now += rng.IntN(2)
		switch pod := fmt.Sprint(rng.IntN(6000)); i % 7 {
		case 0:
			b.Remove(pod)
			delete(alive, pod)
		default:
			if _, known := alive[pod]; known {
				continue
			}

			when := now - rng.IntN(20)
			b.Add(pod, "n", at(when), at(now))
			alive[pod] = when
		}

		if i%500 != 0 {
			continue
		}

		got := b.Count("n", at(now))
		for r, hot := range hotRanges() {
			var want int64
			for _, when := range alive {
				if now-when < int(hot.Range.Seconds()) {
					want++
				}
			}

			if got[r] != want {
				t.Fatalf("step %d, range %v: %d, want %d", i, hot.Range, got[r], want)
			}
		}

		for pod, when := range alive {
			if now-when >= 300 {
				delete(alive, pod)
			}
		}

		if len(b.pods) != len(alive) {
			t.Fatalf("%d pods are counted, want the %d in a range", len(b.pods), len(alive))
		}
	}
}

func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0).UTC() }

func BenchmarkBindsAdd(b *testing.B) {
	binds := NewBinds(hotRanges())
	pods := make([]string, b.N)
	for i := range pods {
		pods[i] = fmt.Sprint(i)
	}

	b.ResetTimer()
	for i := range b.N {
		binds.Add(pods[i], "node", at(i/1000), at(i/1000))
	}
}
