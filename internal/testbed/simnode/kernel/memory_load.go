// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// overrun is the growth per second, as a share of memory.high, of processes above memory.high: the kernel delays them
// longer the further above they are (calculate_high_delay in mm/memcontrol.c). The exact curve depends on their
// allocations.
const overrun = 0.01

// applyMemory sets the memory of a load within its limits: anonymous memory first, then page cache. Page cache that
// does not fit is repeatedly re-read, which counts as stall time.
func (r memoryRules) applyMemory(l Load, span time.Duration) (Use, error) {
	dir := filepath.Join(r.root("memory"), l.Group)
	now, err := r.usage(dir)
	if err != nil {
		return Use{}, err
	}

	if l.Anon <= 0 && l.File <= 0 && now == (groupMemory{refaults: now.refaults}) {
		return Use{}, nil // Nothing is charged or reclaimed.
	}

	high, hard, err := r.ceilings(dir, now.sum())
	if err != nil {
		return Use{}, err
	}

	// Memory that exists already stays when memory.high is lowered below it; growth is slowed.
	anon := max(l.Anon, 0)
	if soft := max(high, now.anon); high != none && anon > soft {
		anon = min(anon, soft+int64(overrun*span.Seconds()*float64(high)))
	}

	if hard != none && anon > hard {
		return Use{Killed: true}, r.die(dir, now)
	}

	// Page cache gets what anonymous memory leaves.
	file := max(l.File, 0)
	for _, limit := range []int64{high, hard} {
		if limit != none {
			file = min(file, max(limit-anon, 0))
		}
	}

	next := groupMemory{anon: anon, active: file / 2, inactive: file - file/2}
	wanted := max(l.Anon, 0) + max(l.File, 0)
	short := wanted - next.sum()
	got := Use{Anon: anon, File: file}
	if short > 0 {
		got.Stalled = float64(short) / float64(wanted)
		if err := r.event(dir, func(e *events) { e.high++ }); err != nil {
			return got, err
		}
	}

	change := groupMemory{
		anon:     next.anon - now.anon,
		inactive: next.inactive - now.inactive,
		active:   next.active - now.active,
		refaults: max(short, 0) / page,
	}

	return got, r.charge(dir, change)
}

// ceilings returns the maximum memory of a group under its own memory.high and memory.max and those of its ancestors,
// given the use of other groups; none for no limit. v1 has only a hard limit.
func (r memoryRules) ceilings(dir string, loadUsage int64) (high, hard int64, err error) {
	high = none
	hard = none
	for group := dir; r.has(group, "memory") && !r.isRoot(group); group = filepath.Dir(group) {
		g, err := r.usage(group)
		if err != nil {
			return 0, 0, err
		}

		// Siblings below the same ancestor share its limit.
		others := g.sum() - loadUsage
		for file, ceiling := range map[string]*int64{"memory.high": &high, "memory.max": &hard, "memory.limit_in_bytes": &hard} {
			limit := int64(none)
			if err := number(group, file, &limit); err != nil {
				return 0, 0, err
			}

			if limit == none || limit == unlimitedV1 {
				continue
			}

			remaining := max(limit-others, 0)
			if *ceiling == none || remaining < *ceiling {
				*ceiling = remaining
			}
		}
	}

	return high, hard, nil
}

func (r memoryRules) die(dir string, now groupMemory) error {
	if err := r.charge(dir, groupMemory{anon: -now.anon, inactive: -now.inactive, active: -now.active}); err != nil {
		return err
	}

	return r.event(dir, func(e *events) { e.oom++; e.killed++ })
}

// stalls contains the shares of a span in which processes waited for memory, by cgroup directory. A parent's value is
// the maximum of its children.
type stalls map[string]struct{ some, full float64 }

func (r memoryRules) addStall(s stalls, group string, share float64) {
	leaf := filepath.Join(r.root("memory"), group)
	for dir := leaf; r.has(dir, "memory") && !r.isRoot(dir); dir = filepath.Dir(dir) {
		v := s[dir]
		v.some = max(v.some, share)
		if dir == leaf {
			v.full = share
		}

		s[dir] = v
	}
}

func (r memoryRules) countStalls(s stalls, span time.Duration) error {
	if r.V1 {
		return nil
	}

	for dir, v := range s {
		if err := addPressure(filepath.Join(dir, "memory.pressure"), v.some, v.full, span); err != nil {
			return err
		}
	}

	return nil
}

// pressure is the content of a PSI file (kernel/sched/psi.c): averages in percent, totals in microseconds.
type pressure struct{ some, full stall }

type stall struct {
	avg10, avg60, avg300 float64
	total                int64
}

const noPressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"

func (p pressure) String() string {
	line := func(kind string, s stall) string {
		return fmt.Sprintf("%s avg10=%.2f avg60=%.2f avg300=%.2f total=%d\n", kind, s.avg10, s.avg60, s.avg300, s.total)
	}

	return line("some", p.some) + line("full", p.full)
}

// after returns the stall time after a span in which a share, 0 to 1, was stalled: averages decay exponentially
// (calc_avgs).
func (s stall) after(share float64, span time.Duration) stall {
	share = min(max(share, 0), 1)
	mix := func(avg, over float64) float64 {
		keep := math.Exp(-span.Seconds() / over)
		return avg*keep + 100*share*(1-keep)
	}

	s.avg10 = mix(s.avg10, 10)
	s.avg60 = mix(s.avg60, 60)
	s.avg300 = mix(s.avg300, 300)
	s.total += int64(share * float64(span/time.Microsecond))

	return s
}

// addPressure adds a span to a PSI file.
func addPressure(file string, some, full float64, span time.Duration) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading pressure: %w", err)
	}

	var p pressure
	const line = "%s avg10=%f avg60=%f avg300=%f total=%d\n"
	var kind string
	if _, err := fmt.Sscanf(string(content), line+line,
		&kind, &p.some.avg10, &p.some.avg60, &p.some.avg300, &p.some.total, &kind, &p.full.avg10, &p.full.avg60, &p.full.avg300, &p.full.total); err != nil {
		return fmt.Errorf("parsing pressure of %s: %w", file, err)
	}

	p.some = p.some.after(some, span)
	p.full = p.full.after(full, span)

	return writeFile(file, p.String())
}
