// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"slices"
)

// Take takes n CPUs of free, or returns false if there are fewer. It takes whole cores first, then threads of cores that are partly in
// use, and splits a whole core last, so that owners share as few cores as possible; all of these of as few L3 caches as possible, where a
// core of a cache in use is split before another cache is used. Among equals the lowest CPU comes first.
func (l *Layout) Take(free CPUSet, n int) (CPUSet, bool) { return l.takeBeside(CPUSet{}, free, n) }

// takeBeside is Take for an owner that has CPUs, and completes its cores and uses its caches first.
func (l *Layout) takeBeside(owned, free CPUSet, n int) (CPUSet, bool) {
	free = free.Intersection(l.all).Difference(owned)
	if n < 0 || free.Len() < n {
		return CPUSet{}, false
	}

	t := taker{layout: l, missing: n, inUse: map[int]bool{}}
	for c := range owned.Intersection(l.all).All() {
		t.inUse[l.threads[c].Cache] = true
	}

	t.group(owned, free)
	t.orderCaches()
	t.takeWholeCores()
	t.takeThreads()

	return NewCPUSet(t.chosen...), true
}

// taker takes CPUs for an owner.
type taker struct {
	layout  *Layout
	caches  []*freeCache
	chosen  []int
	missing int
	// inUse are the caches of CPUs that the owner has or gets.
	inUse map[int]bool
}

// freeCache holds the free CPUs of a cache.
type freeCache struct {
	id    int
	cores []*freeCore // by lowest CPU
	// whole and rest are the numbers of free CPUs in whole cores and in others.
	whole, rest int
}

// freeCore holds the free CPUs of a core.
type freeCore struct {
	cpus []int
	// whole cores are free or the owner's; begun are those of which the owner has a part.
	whole, begun bool
}

func (t *taker) group(owned, free CPUSet) {
	cores := map[int]*freeCore{}
	caches := map[int]*freeCache{}
	for c := range free.All() {
		thread := t.layout.threads[c]
		cache := caches[thread.Cache]
		if cache == nil {
			cache = &freeCache{id: thread.Cache}
			caches[thread.Cache] = cache
			t.caches = append(t.caches, cache)
		}

		core := cores[thread.Core]
		if core == nil {
			all := t.layout.cores[thread.Core]
			core = &freeCore{whole: all.Difference(free).Difference(owned).Len() == 0, begun: all.Intersection(owned).Len() > 0}
			cores[thread.Core] = core
			cache.cores = append(cache.cores, core)
		}

		core.cpus = append(core.cpus, c)
		if core.whole {
			cache.whole++
		} else {
			cache.rest++
		}
	}
}

// orderCaches orders the caches such that the first ones suffice for what is missing: those in use, then the largest ones as long as none
// suffices alone for the remainder, then the smallest one that does.
func (t *taker) orderCaches() {
	whole := t.wholeCPUs()
	rest := t.missing - whole
	for i := range t.caches {
		best := slices.MinFunc(t.caches[i:], func(a, b *freeCache) int {
			return cmp.Or(compareBool(t.inUse[a.id], t.inUse[b.id]), a.compare(b, whole, rest))
		})
		k := slices.Index(t.caches, best)
		t.caches = slices.Insert(slices.Delete(t.caches, k, k+1), i, best)

		fromWhole := min(best.whole, whole)
		whole -= fromWhole
		rest -= min(best.rest+best.whole-fromWhole, rest)
	}
}

// wholeCPUs returns how many of the missing CPUs can be whole cores.
func (t *taker) wholeCPUs() int {
	n := 0
	for _, cache := range t.caches {
		for _, core := range cache.cores {
			if core.whole && n+len(core.cpus) <= t.missing {
				n += len(core.cpus)
			}
		}
	}

	return n
}

// compare orders caches for a number of CPUs in whole cores and of single threads: first those that suffice, without splitting a core before
// others, the smallest first; then those that have the most of it. Equal ones keep their order.
func (c *freeCache) compare(other *freeCache, whole, rest int) int {
	suffices := func(c *freeCache) bool { return c.whole >= whole && c.whole+c.rest >= whole+rest }
	if suffices(c) || suffices(other) {
		return cmp.Or(
			compareBool(suffices(c), suffices(other)),
			compareBool(c.rest >= rest, other.rest >= rest),
			cmp.Compare(c.whole+c.rest, other.whole+other.rest),
		)
	}

	gain := func(c *freeCache) int { return min(c.whole, whole) + min(c.rest, rest) }
	return cmp.Or(cmp.Compare(gain(other), gain(c)), cmp.Compare(c.whole+c.rest, other.whole+other.rest))
}

// compareBool orders true before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}

	return 1
}

func (t *taker) take(cache *freeCache, core *freeCore, n int) {
	n = min(n, len(core.cpus), t.missing)
	if n == 0 {
		return
	}

	t.chosen = append(t.chosen, core.cpus[:n]...)
	core.cpus = core.cpus[n:]
	t.missing -= n
	t.inUse[cache.id] = true
}

func (t *taker) takeWholeCores() {
	for _, begun := range []bool{true, false} {
		for _, cache := range t.caches {
			for _, core := range cache.cores {
				if core.whole && core.begun == begun && len(core.cpus) <= t.missing {
					t.take(cache, core, len(core.cpus))
				}
			}
		}
	}
}

// takeThreads takes single threads of caches in use, where whole cores are split last, and then of others.
func (t *taker) takeThreads() {
	for _, cache := range t.caches {
		if t.inUse[cache.id] {
			t.takeThreadsOf(cache, false)
			t.takeThreadsOf(cache, true)
		}
	}

	for _, whole := range []bool{false, true} {
		for _, cache := range t.caches {
			t.takeThreadsOf(cache, whole)
		}
	}
}

// takeThreadsOf takes the threads of cores of a cache, of as few cores as possible: the smallest one that suffices, else the largest one.
func (t *taker) takeThreadsOf(cache *freeCache, whole bool) {
	for t.missing > 0 {
		var best *freeCore
		for _, core := range cache.cores {
			if core.whole == whole && len(core.cpus) > 0 && (best == nil || t.fitsBetter(core, best)) {
				best = core
			}
		}

		if best == nil {
			return
		}

		t.take(cache, best, len(best.cpus))
	}
}

func (t *taker) fitsBetter(core, other *freeCore) bool {
	if core.begun != other.begun {
		return core.begun
	}

	a := len(core.cpus)
	b := len(other.cpus)
	if (a >= t.missing) != (b >= t.missing) {
		return a >= t.missing
	}

	if a >= t.missing {
		return a < b
	}

	return a > b
}
