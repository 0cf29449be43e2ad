// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/numa"
)

// Load is the demand of the processes of a group.
type Load struct {
	Group string
	// CPU is the demand in cores.
	CPU float64
	// Anon is anonymous memory and File page cache, in bytes.
	Anon, File int64
	// Read and Written are disk transfers in bytes per second.
	Read, Written float64
}

// Use is the resources that the processes received.
type Use struct {
	CPU           float64
	Anon, File    int64
	Read, Written float64
	// Stalled is the share of time waiting for memory, 0 to 1.
	Stalled float64
	// Killed reports whether the processes were OOM-killed.
	Killed bool
}

// Run runs one group with a demand of cores for a span while all others are idle, and counts its use in it and its
// ancestors.
func (t *Tree) Run(group string, cores float64, span time.Duration) (float64, error) {
	h, err := t.usage(group)
	if err != nil {
		return 0, err
	}

	got, err := t.Tick(span, []Load{{Group: group, CPU: cores, Anon: h.anon, File: h.file()}})
	if err != nil {
		return 0, err
	}

	return got[0].CPU, nil
}

// Tick simulates a span with loads of leaf groups. CPU is shared by weight within quotas and cpusets, and memory is
// kept below memory.high and memory.max; all of it is counted in files. Groups without a load keep their memory and use
// no CPU.
func (t *Tree) Tick(span time.Duration, loads []Load) ([]Use, error) {
	out, err := t.tick(span, loads, math.Inf(1))
	return out.got, err
}

// tick is the result of a span: the use of each load in order, and for the machine the share of time in which some load
// waited for CPU, some and all waited for memory, and some waited for disks.
type tick struct {
	got                                     []Use
	span                                    time.Duration
	waited, stalled, allStalled, diskWaited float64
}

func (t *Tree) tick(span time.Duration, loads []Load, cores float64) (tick, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	h := t.hierarchy()
	out := tick{got: make([]Use, len(loads)), allStalled: 1}

	machine, err := h.scheduler().branches(loads)
	if err != nil {
		return tick{}, err
	}

	machine.distribute(min(machine.demand, float64(machine.cpus), cores))
	if err := h.scheduler().count(machine, span); err != nil {
		return tick{}, err
	}

	waited := stalls{}
	for i, l := range loads {
		got, err := h.memory().applyMemory(l, span)
		if err != nil {
			return tick{}, err
		}

		b := machine.find(l.Group)
		got.CPU = b.got
		if b.demand > 0 {
			out.waited = max(out.waited, 1-b.got/b.demand)
		}

		out.stalled = max(out.stalled, got.Stalled)
		out.allStalled = min(out.allStalled, got.Stalled)
		out.got[i] = got
		h.memory().addStall(waited, l.Group, got.Stalled)
	}

	if len(loads) == 0 {
		out.allStalled = 0
	}

	wanted := transferDemand(loads)
	t.transfers = t.transfers || wanted > 0
	if t.transfers { // Without any disk I/O so far, no file changes.
		share := 1.0
		if t.Disk > 0 && wanted > t.Disk {
			share = t.Disk / wanted // Each load gets the same share of its demand.
		}

		if out.diskWaited, err = h.disks().transfer(loads, out.got, span, share); err != nil {
			return tick{}, err
		}
	}

	return out, h.memory().countStalls(waited, span)
}

// branch is a group in the view of the scheduler.
type branch struct {
	dir      string
	children map[string]*branch
	// wants is the demand of the processes below, demand the part of it within the limits of this group and those
	// below.
	wants, demand, got float64
	weight             float64
	limit              bandwidth
	cpus               int
}

// scheduler distributes CPU time among groups and counts it.
type scheduler struct{ hierarchy }

func (r scheduler) branches(loads []Load) (*branch, error) {
	cpus, _ := r.machine()
	list, err := numa.ParseCPUSet(cpus)
	if err != nil {
		return nil, fmt.Errorf("parsing the CPUs of the machine: %w", err)
	}

	machine := &branch{
		dir:    r.root("cpu"),
		limit:  bandwidth{quota: none},
		cpus:   list.Len(),
		weight: 1,
	}

	// Each load adds its demand to its group; the groups above are created on the way.
	for _, l := range loads {
		parent := machine
		for part := range strings.SplitSeq(l.Group, "/") {
			next := parent.children[part]
			if next == nil {
				if next, err = r.branch(filepath.Join(parent.dir, part), parent.cpus); err != nil {
					return nil, err
				}

				if parent.children == nil {
					parent.children = map[string]*branch{}
				}
				parent.children[part] = next
			}

			parent = next
		}

		parent.wants += max(l.CPU, 0)
	}

	machine.sumDemand()
	return machine, nil
}

func (r scheduler) branch(dir string, cpus int) (*branch, error) {
	b := &branch{dir: dir, cpus: cpus}
	var err error
	if b.limit, err = r.cpu().bandwidth(dir); err != nil {
		return nil, err
	}

	// An idle group competes with a weight far below the default.
	weight := int64(usualWeight)

	file := "cpu.weight"
	if r.V1 {
		file = "cpu.shares"
		weight = usualShares
	}

	if err := number(dir, file, &weight); err != nil {
		return nil, err
	}

	b.weight = float64(weight)
	if text(dir, "cpu.idle") == "1" {
		b.weight = float64(idleShares) * usualWeight / usualShares
	}

	// On version 1 the cpuset of a group is in another hierarchy.
	sets := filepath.Join(r.root("cpuset"), strings.TrimPrefix(dir, r.root("cpu")))

	file = "cpuset.cpus.effective"
	if r.V1 {
		file = "cpuset.cpus"
	}
	if list, err := numa.ParseCPUSet(text(sets, file)); err == nil && list.Len() > 0 {
		b.cpus = min(cpus, list.Len())
	}

	return b, nil
}

func (b *branch) find(group string) *branch {
	for part := range strings.SplitSeq(group, "/") {
		b = b.children[part]
	}

	return b
}

// sumDemand sums the demand of the branch.
func (b *branch) sumDemand() {
	b.demand = b.wants
	for _, c := range b.children {
		c.sumDemand()
		b.wants += c.wants
		b.demand += c.demand
	}

	b.demand = min(b.demand, float64(b.cpus))
	if b.limit.quota != none {
		b.demand = min(b.demand, b.limit.share())
	}
}

// distribute shares cores by weight; unused shares go to the other groups.
func (b *branch) distribute(cores float64) {
	b.got = cores
	hungry := make([]*branch, 0, len(b.children))
	weights := 0.0
	for _, c := range b.children {
		hungry = append(hungry, c)
		weights += c.weight
	}

	// Groups with the least demand per weight are satisfied first.
	slices.SortFunc(hungry, func(x, y *branch) int {
		if d := x.demand*y.weight - y.demand*x.weight; d != 0 {
			return int(math.Copysign(1, d))
		}

		return strings.Compare(x.dir, y.dir)
	})

	for _, c := range hungry {
		share := cores
		if weights > c.weight {
			share = cores * c.weight / weights
		}

		c.distribute(min(c.demand, share))
		cores -= c.got
		weights -= c.weight
	}
}

// count writes the use of groups. A parent's stall time is the maximum of its children.
func (r scheduler) count(b *branch, span time.Duration) error {
	_, _, err := r.countBelow(b, span)
	return err
}

func (r scheduler) countBelow(b *branch, span time.Duration) (some, full float64, err error) {
	full = 1
	for _, c := range b.children {
		s, f, err := r.countBelow(c, span)
		if err != nil {
			return 0, 0, err
		}

		some = max(some, s)
		full = min(full, f)
	}

	// Only a leaf group with a demand has waits of its own.
	if len(b.children) == 0 {
		full = 0
	}

	// All processes of a throttled group wait at the same time; otherwise some of them run.
	if b.wants > 0 && len(b.children) == 0 {
		some = 1 - b.got/b.wants
		if b.throttled() {
			full = some
		}
	}

	if r.isRoot(b.dir) {
		return some, 0, nil
	}

	if !r.V1 {
		if err := addPressure(filepath.Join(b.dir, "cpu.pressure"), some, full, span); err != nil {
			return 0, 0, err
		}
	}

	return some, full, r.countCPU(b, span)
}

// throttled reports whether the group's own quota limits it.
func (b *branch) throttled() bool {
	return b.limit.quota != none && b.wants > b.got && b.got >= b.limit.share()*(1-1e-9)
}

// cpuStat is cpu.stat of v2, in microseconds.
type cpuStat struct{ usage, periods, throttled, waited int64 }

func (s cpuStat) String() string {
	return fmt.Sprintf("usage_usec %d\nuser_usec %d\nsystem_usec 0\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", s.usage, s.usage, s.periods, s.throttled, s.waited)
}

func (r scheduler) countCPU(b *branch, span time.Duration) error {
	content, err := os.ReadFile(filepath.Join(b.dir, "cpu.stat"))
	if err != nil {
		return fmt.Errorf("reading cpu.stat: %w", err)
	}

	var s cpuStat
	var user, system int64
	if r.V1 {
		_, err = fmt.Sscanf(string(content), "nr_periods %d\nnr_throttled %d\nthrottled_time %d\n", &s.periods, &s.throttled, &s.waited)
		err = errors.Join(err, number(b.dir, "cpuacct.usage", &s.usage))
	} else {
		_, err = fmt.Sscanf(string(content), "usage_usec %d\nuser_usec %d\nsystem_usec %d\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", &s.usage, &user, &system, &s.periods, &s.throttled, &s.waited)
	}

	if err != nil {
		return fmt.Errorf("parsing cpu.stat: %w", err)
	}

	// Version 1 counts in nanoseconds.
	unit := time.Microsecond
	if r.V1 {
		unit = time.Nanosecond
	}

	s.usage += int64(b.got * float64(span/unit))
	if b.limit.quota != none {
		periods := int64(span/time.Microsecond) / b.limit.period
		s.periods += periods
		if b.throttled() {
			s.throttled += periods
			s.waited += int64((b.wants - b.got) * float64(span/unit))
		}
	}

	if !r.V1 {
		return writeFile(filepath.Join(b.dir, "cpu.stat"), s.String())
	}

	return errors.Join(
		writeFile(filepath.Join(b.dir, "cpu.stat"), fmt.Sprintf("nr_periods %d\nnr_throttled %d\nthrottled_time %d\n", s.periods, s.throttled, s.waited)),
		set(b.dir, "cpuacct.usage", strconv.FormatInt(s.usage, 10)))
}
