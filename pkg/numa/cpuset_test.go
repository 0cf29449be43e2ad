// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestParseCPUSet(t *testing.T) {
	for in, want := range map[string]string{
		"": "", " 0-3,8\n": "0-3,8", "8,0-3,2": "0-3,8", "63-64": "63-64", "8191": "8191", "7, 9": "7,9", "5-5": "5",
	} {
		s, err := ParseCPUSet(in)
		if err != nil || s.String() != want {
			t.Errorf("%q: %q, %v, want %q", in, s, err, want)
		}
	}

	for in, want := range map[string]string{
		"8192": "at most 8191", "3-1": "is descending", "1,,2": "not a CPU number", "-1": "not a CPU number", "1-": "not a CPU number",
		"0x3": "not a CPU number", "1-2-3": "not a CPU number", "99999999999999999999": "not a CPU number", "0-4294967295": "at most",
	} {
		if _, err := ParseCPUSet(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func FuzzParseCPUSet(f *testing.F) {
	f.Add("0-3,8")
	f.Add("1,,")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseCPUSet(in)
		if err != nil {
			return
		}

		again, err := ParseCPUSet(s.String())
		if err != nil || again != s || s.Len() != len(slices.Collect(s.All())) {
			t.Fatalf("ParseCPUSet(%q) formatted and parsed again = %q, %v, want the same set", in, again, err)
		}
	})
}

// TestCPUSet_Operations compares the operations with those on maps.
func TestCPUSet_Operations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		draw := func() (CPUSet, map[int]bool) {
			m := map[int]bool{}
			for range r.IntN(40) {
				m[r.IntN(300)] = true
			}

			var cpus []int
			for c := range m {
				cpus = append(cpus, c)
			}

			return NewCPUSet(cpus...), m
		}

		a, am := draw()
		b, bm := draw()
		for c := range 301 {
			if a.Contains(c) != am[c] || a.Union(b).Contains(c) != (am[c] || bm[c]) ||
				a.Intersection(b).Contains(c) != (am[c] && bm[c]) || a.Difference(b).Contains(c) != (am[c] && !bm[c]) {
				t.Fatalf("set operations on %s and %s are wrong for CPU %d, want it in the first %t, in the second %t", a, b, c, am[c], bm[c])
			}
		}

		if a.Len() != len(am) || a.Difference(a) != (CPUSet{}) || a.Union(b) != b.Union(a) {
			t.Fatalf("%s has %d, want %d", a, a.Len(), len(am))
		}
	}

	if NewCPUSet(-1, 9000) != (CPUSet{}) {
		t.Error("NewCPUSet(-1, 9000) is not empty, want numbers out of range ignored")
	}
}

// newHyperthreadedLayout returns zones with cores of two threads each, numbered as in Linux: first threads first, with a gap between
// zones.
func newHyperthreadedLayout(t testing.TB, zones, cores int) *Layout {
	t.Helper()

	var threads []Thread
	for z := range zones {
		for c := range cores {
			core := 100*z + c
			threads = append(threads,
				Thread{CPU: 64*z + c, Core: core, Zone: fmt.Sprint("node", z)},
				Thread{CPU: 64*z + c + cores, Core: core, Zone: fmt.Sprint("node", z)})
		}
	}

	l, err := NewLayout(threads)
	if err != nil {
		t.Fatal(err)
	}

	return l
}

func TestTake(t *testing.T) {
	l := newHyperthreadedLayout(t, 1, 4) // cores are {0,4} {1,5} {2,6} {3,7}
	for _, c := range []struct {
		free string
		n    int
		want string
	}{
		{"0-7", 2, "0,4"},
		{"0-7", 4, "0-1,4-5"},
		{"0-7", 3, "0-1,4"},
		{"0-3,5-7", 2, "1,5"}, // core 0 is incomplete
		{"0-3,5-7", 3, "0-1,5"},
		{"0-3,5-7", 1, "0"}, // the incomplete core first
		{"0-3", 2, "0-1"},
		{"0-7", 8, "0-7"},
		{"0-7", 0, ""},
	} {
		free, err := ParseCPUSet(c.free)
		if err != nil {
			t.Fatal(err)
		}

		if got, ok := l.Take(free, c.n); !ok || got.String() != c.want {
			t.Errorf("%d of %s: %s (%v), want %s", c.n, c.free, got, ok, c.want)
		}
	}

	if _, ok := l.Take(NewCPUSet(0, 900), 2); ok {
		t.Error("Take(CPUs 0 and 900, 2) succeeds, want false: the machine has no CPU 900")
	}
}

func TestNewLayout_Invalid(t *testing.T) {
	for what, threads := range map[string][]Thread{
		"twice":               {{CPU: 1, Core: 1, Zone: "a"}, {CPU: 1, Core: 2, Zone: "a"}},
		"no zone":             {{CPU: 1, Core: 1}},
		"out of range":        {{CPU: MaxCPU + 1, Core: 1, Zone: "a"}},
		"negative":            {{CPU: -1, Core: 1, Zone: "a"}},
		"a core in two zones": {{CPU: 1, Core: 1, Zone: "a"}, {CPU: 2, Core: 1, Zone: "b"}},
	} {
		if _, err := NewLayout(threads); err == nil {
			t.Errorf("NewLayout with %s succeeds, want an error", what)
		}
	}
}

// TestCPUAllocator allocates and releases for owners of all policies and checks the allocator after each step.
func TestCPUAllocator(t *testing.T) {
	policies := []Policy{PolicyNone, PolicyExclusive, PolicyNUMA, PolicyImmovable}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		layout := newHyperthreadedLayout(t, 2, 4)
		reserved := NewCPUSet(0, 64)

		l := NewCPUAllocator(layout, reserved)
		asked := map[string]map[string]int{}
		for step := range 60 {
			owner := fmt.Sprint("pod", r.IntN(8))
			if r.IntN(3) == 0 {
				l.Release(owner)
				delete(asked, owner)
				continue
			}

			// An owner with an allocation requests another, as for a resize; it kept its CPUs, or is new on the machine.
			var had CPUSet
			if h := l.allocations[owner]; r.IntN(3) > 0 {
				had = h.cpus
			}

			counts := map[string]int{"node0": r.IntN(4), "node1": r.IntN(4)}
			policy := policies[r.IntN(len(policies))]
			before := l.pinned()

			own := l.CPUs(owner)
			shared := l.Shared()
			if err := l.Allocate(owner, policy, counts, had); err != nil {
				if l.pinned() != before || l.CPUs(owner) != own || l.Shared() != shared {
					t.Fatalf("seed %d: Allocate returns %v but changes CPUs, want no change", seed, err)
				}

				continue
			}

			asked[owner] = counts
			if policy == PolicyNone {
				asked[owner] = map[string]int{}
			}

			verifyAllocator(t, l, asked, fmt.Sprintf("seed %d step %d", seed, step))
		}

		for owner := range asked {
			l.Release(owner)
		}

		if l.Shared() != layout.All() || len(l.allocations) != 0 {
			t.Fatalf("seed %d: after all owners are released %s are shared, want %s", seed, l.Shared(), layout.All())
		}
	}
}

// verifyAllocator fails if a CPU is assigned twice, a reserved one at all, or an owner has fewer than promised.
func verifyAllocator(t *testing.T, l *CPUAllocator, asked map[string]map[string]int, when string) {
	t.Helper()

	given := map[int]string{}
	for owner, counts := range asked {
		h := l.allocations[owner]
		cpus := l.CPUs(owner)
		if h.policy == PolicyExclusive || h.policy == PolicyImmovable {
			for c := range cpus.All() {
				if other, twice := given[c]; twice {
					t.Fatalf("%s: CPU %d belongs to %s and to %s, want one owner", when, c, owner, other)
				}

				given[c] = owner
			}
		}

		if h.policy != PolicyNone && cpus.Intersection(l.reserved).Len() > 0 {
			t.Fatalf("%s: %s runs on reserved CPUs, want none of %s", when, owner, l.reserved)
		}

		for zone, n := range counts {
			has := cpus.Intersection(l.layout.zones[zone]).Len()
			if fixed := h.policy == PolicyExclusive || h.policy == PolicyImmovable; fixed && has != n || !fixed && has < n {
				t.Fatalf("%s: %s (%s) has %d CPUs of %s, want %d", when, owner, h.policy, has, zone, n)
			}
		}
	}

	for owner := range asked {
		for other := range asked {
			if owner != other && l.allocations[owner].policy == PolicyExclusive && l.CPUs(owner).Intersection(l.CPUs(other)).Len() > 0 {
				t.Fatalf("%s: %s runs on exclusive CPUs of %s, want none of them", when, other, owner)
			}
		}
	}
}

func TestCPUAllocator_Refusals(t *testing.T) {
	l := NewCPUAllocator(newHyperthreadedLayout(t, 1, 4), NewCPUSet(0))
	if err := l.Restore("a", PolicyExclusive, NewCPUSet(1, 5)); err != nil {
		t.Fatal(err)
	}

	for what, err := range map[string]error{
		"another's": l.Restore("b", PolicyImmovable, NewCPUSet(5, 6)),
		"all":       l.Restore("b", PolicyExclusive, NewCPUSet(0, 2, 3, 4, 6, 7)),
		"not there": l.Restore("b", PolicyExclusive, NewCPUSet(77)),
		"twice":     l.Restore("a", PolicyExclusive, NewCPUSet(2)),
		"shared":    l.Restore("b", PolicyNUMA, NewCPUSet(2)),
		"policy":    l.Allocate("b", "whatever", nil, CPUSet{}),
		"negative":  l.Allocate("b", PolicyExclusive, map[string]int{"node0": -1}, CPUSet{}),
		"no zone":   l.Allocate("b", PolicyExclusive, map[string]int{"node9": 1}, CPUSet{}),
	} {
		if err == nil {
			t.Errorf("case %q: no error, want one", what)
		}
	}

	if err := l.Allocate("b", PolicyExclusive, map[string]int{"node0": 6}, CPUSet{}); err == nil {
		t.Error("Allocate of 6 CPUs in a zone with 5 unassigned ones succeeds, want an error")
	}
	if got := l.Shared().String(); got != "0,2-4,6-7" {
		t.Errorf("Shared after refused requests = %s, want 0,2-4,6-7", got)
	}
}

// newChiplet returns one zone with caches of cores of two threads; CPU c and c+cores are a core.
func newChiplet(t *testing.T, caches, coresPerCache int) *Layout {
	t.Helper()

	var threads []Thread
	cores := caches * coresPerCache
	for c := range 2 * cores {
		threads = append(threads, Thread{CPU: c, Core: c % cores, Zone: "node0", Cache: 1 + c%cores/coresPerCache})
	}

	l, err := NewLayout(threads)
	if err != nil {
		t.Fatal(err)
	}

	return l
}

// TestTake_Caches checks that CPUs are of as few L3 caches as possible, but no core is split for that.
func TestTake_Caches(t *testing.T) {
	l := newChiplet(t, 3, 4) // caches {0-3,12-15} {4-7,16-19} {8-11,20-23}
	for name, c := range map[string]struct {
		owned, free string
		n           int
		want        string
	}{
		"a cache that suffices":                 {"", "3-11,15-23", 4, "4-5,16-17"},
		"the smallest one that suffices":        {"", "2-11,14-23", 4, "2-3,14-15"},
		"a whole one and a part":                {"", "2-11,14-23", 10, "2,4-7,14,16-19"},
		"an odd number":                         {"", "0-11,13-23", 3, "0-1,13"},
		"a split core instead of another cache": {"", "0-3,8,12-15", 3, "0-1,12"},
		"no split core for a cache":             {"", "0-3,4-6,16-18", 4, "4-5,16-17"},
		"beside those that it has":              {"8,20", "0-7,9-11,12-19,21-23", 4, "9-10,21-22"},
		"its own core":                          {"8", "0-7,9-11,12-23", 1, "20"},
		"its own core and another":              {"8", "0-7,9-11,12-23", 3, "9,20-21"},
	} {
		owned, err := ParseCPUSet(c.owned)
		if err != nil {
			t.Fatal(err)
		}

		free, err := ParseCPUSet(c.free)
		if err != nil {
			t.Fatal(err)
		}

		if got, ok := l.takeBeside(owned, free, c.n); !ok || got.String() != c.want {
			t.Errorf("%s: %d of %s beside %s = %s, %t, want %s", name, c.n, c.free, c.owned, got, ok, c.want)
		}
	}
}

// TestTake_UnknownCaches checks that CPUs without a known cache count as one.
func TestTake_UnknownCaches(t *testing.T) {
	l := newHyperthreadedLayout(t, 1, 4)
	free := NewCPUSet(1, 2, 3, 5, 6, 7)
	if got, ok := l.Take(free, 4); !ok || got.String() != "1-2,5-6" {
		t.Errorf("Take(%s, 4) = %s, %t, want 1-2,5-6", free, got, ok)
	}
}
