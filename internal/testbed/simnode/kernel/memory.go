// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	page = 4096
	// unlimitedV1 is the v1 value for no limit: PAGE_COUNTER_MAX pages.
	unlimitedV1 = math.MaxInt64 / page * page
)

// groupMemory is the memory of a group and those below it in bytes.
type groupMemory struct {
	anon, inactive, active int64
	// refaults counts pages of files that were dropped and re-read.
	refaults int64
}

func (g groupMemory) file() int64 { return g.inactive + g.active }
func (g groupMemory) sum() int64  { return g.anon + g.file() }

func (g groupMemory) plus(o groupMemory) groupMemory {
	return groupMemory{g.anon + o.anon, g.inactive + o.inactive, g.active + o.active, g.refaults + o.refaults}
}

// memoryRules are the rules of the memory controller.
type memoryRules struct{ hierarchy }

func (r memoryRules) newMemory() map[string]string {
	if r.V1 {
		return map[string]string{
			"memory.limit_in_bytes": strconv.FormatInt(unlimitedV1, 10) + "\n", "memory.usage_in_bytes": "0\n", "memory.stat": r.memoryStat(groupMemory{}),
		}
	}

	return map[string]string{
		"memory.current": "0\n", "memory.stat": r.memoryStat(groupMemory{}), "memory.high": "max\n", "memory.max": "max\n", "memory.min": "0\n", "memory.low": "0\n",
		"memory.reclaim": "", "memory.events": events{}.String(),
	}
}

func (r memoryRules) memoryStat(g groupMemory) string {
	if r.V1 {
		var b strings.Builder
		for _, prefix := range []string{"", "total_"} {
			fmt.Fprintf(&b, "%scache %d\n%srss %d\n%sinactive_file %d\n%sactive_file %d\n%sworkingset_refault %d\n",
				prefix, g.file(), prefix, g.anon, prefix, g.inactive, prefix, g.active, prefix, g.refaults)
		}

		return b.String()
	}

	return fmt.Sprintf("anon %d\nfile %d\ninactive_anon %d\nactive_anon 0\ninactive_file %d\nactive_file %d\nworkingset_refault_file %d\n",
		g.anon, g.file(), g.anon, g.inactive, g.active, g.refaults)
}

func (r memoryRules) usage(dir string) (groupMemory, error) {
	var g groupMemory
	content, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return g, fmt.Errorf("reading memory.stat: %w", err)
	}

	for line := range strings.Lines(string(content)) {
		var key string
		var n int64
		if _, err := fmt.Sscanf(line, "%s %d", &key, &n); err != nil {
			return g, fmt.Errorf("parsing memory.stat: %w", err)
		}

		// The names are those of version 2 and version 1.
		switch key {
		case "anon", "rss":
			g.anon = n
		case "inactive_file":
			g.inactive = n
		case "active_file":
			g.active = n
		case "workingset_refault_file", "workingset_refault":
			g.refaults = n
		}
	}

	return g, nil
}

// usage returns the memory of a group.
func (t *Tree) usage(group string) (groupMemory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.hierarchy().memory().usage(filepath.Join(t.hierarchy().root("memory"), group))
}

// free releases all memory of a group, as the exit of its processes does.
func (t *Tree) free(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	dir := filepath.Join(t.hierarchy().root("memory"), group)
	g, err := t.hierarchy().memory().usage(dir)
	if err != nil {
		return err
	}

	return t.hierarchy().memory().charge(dir, groupMemory{anon: -g.anon, inactive: -g.inactive, active: -g.active})
}

// charge adds memory to a group and those above it.
func (r memoryRules) charge(dir string, change groupMemory) error {
	for ; r.has(dir, "memory") && !r.isRoot(dir); dir = filepath.Dir(dir) {
		g, err := r.usage(dir)
		if err != nil {
			return err
		}

		g = g.plus(change)
		used := "memory.current"
		if r.V1 {
			used = "memory.usage_in_bytes"
		}

		if err := errors.Join(writeFile(filepath.Join(dir, "memory.stat"), r.memoryStat(g)), set(dir, used, strconv.FormatInt(g.sum(), 10))); err != nil {
			return err
		}
	}

	return nil
}

// reclaim drops page cache of a group and those below it, inactive first, and returns the amount. Without swap only
// page cache can be reclaimed. Only leaf groups have memory.
func (r memoryRules) reclaim(dir string, want int64) (freed int64, err error) {
	names, err := subgroups(dir)
	if err != nil {
		return 0, err
	}

	if len(names) == 0 {
		g, err := r.usage(dir)
		if err != nil {
			return 0, err
		}

		// The kernel drops inactive pages first.
		idle := min(want, g.inactive)
		used := min(want-idle, g.active)

		return idle + used, r.charge(dir, groupMemory{inactive: -idle, active: -used})
	}

	for _, name := range names {
		if freed >= want {
			break
		}

		n, err := r.reclaim(filepath.Join(dir, name), want-freed)
		if err != nil {
			return freed, err
		}

		freed += n
	}

	return freed, nil
}

// setMemory applies a value of a file of the memory controller (mm/memcontrol.c, mm/memcontrol-v1.c).
func (r memoryRules) setMemory(dir, name, value string) error {
	if r.V1 {
		if name != "memory.limit_in_bytes" {
			return errReadOnly
		}

		return r.setLimit(dir, value)
	}

	switch name {
	case "memory.reclaim":
		return r.reclaimNow(dir, value)
	case "memory.high", "memory.max", "memory.min", "memory.low":
	default:
		return errReadOnly
	}

	limit, ok := parseBytes(value, "max")
	if !ok {
		return syscall.EINVAL // page_counter_memparse in mm/page_counter.c
	}

	text := "max"
	if limit != none {
		text = strconv.FormatInt(limit, 10)
	}

	if err := set(dir, name, text); err != nil || limit == none {
		return err
	}

	g, err := r.usage(dir)
	if err != nil {
		return err
	}

	// memory_high_write and memory_max_write always set the value. The excess is reclaimed before the write returns;
	// what remains above memory.max is OOM-killed.
	if name != "memory.high" && name != "memory.max" || g.sum() <= limit {
		return nil
	}

	if _, err := r.reclaim(dir, g.sum()-limit); err != nil {
		return err
	}

	if name == "memory.max" {
		return r.kill(dir, limit)
	}

	return nil
}

// setLimit implements mem_cgroup_resize_max: v1 rejects a limit that reclaim cannot reach.
func (r memoryRules) setLimit(dir, value string) error {
	limit, ok := parseBytes(value, "-1")
	if !ok || r.isRoot(dir) {
		return syscall.EINVAL
	}

	if limit == none {
		return set(dir, "memory.limit_in_bytes", strconv.FormatInt(unlimitedV1, 10))
	}

	g, err := r.usage(dir)
	if err != nil {
		return err
	}

	// The limit is set only if reclaim makes the group fit.
	if g.sum() > limit {
		freed, err := r.reclaim(dir, g.sum()-limit)
		if err != nil {
			return err
		}

		if g.sum()-freed > limit {
			return syscall.EBUSY
		}
	}

	return set(dir, "memory.limit_in_bytes", strconv.FormatInt(limit, 10))
}

// maxSwappiness is the kernel's MAX_SWAPPINESS.
const maxSwappiness = 200

// reclaimNow implements memory_reclaim: EAGAIN if less could be reclaimed than requested. Without swap, swappiness has
// no effect.
func (r memoryRules) reclaimNow(dir, value string) error {
	amount, key, more := strings.Cut(value, " ")
	want, ok := parseBytes(amount, "")
	if !ok || more && !swappiness(key) {
		return syscall.EINVAL
	}

	if want == none {
		want = math.MaxInt64
	}

	freed, err := r.reclaim(dir, want)
	if err != nil {
		return err
	}

	if freed < want {
		return syscall.EAGAIN
	}

	return nil
}

func swappiness(key string) bool {
	text, ok := strings.CutPrefix(key, "swappiness=")
	n, err := strconv.Atoi(text)
	return ok && err == nil && n >= 0 && n <= maxSwappiness
}

// kill implements mem_cgroup_out_of_memory: it kills the largest group below until the rest is within the limit.
func (r memoryRules) kill(dir string, limit int64) error {
	for {
		g, err := r.usage(dir)
		if err != nil || g.sum() <= limit {
			return err
		}

		victim, used, err := r.largest(dir)
		if err != nil || used.sum() == 0 {
			return err
		}

		if err := r.charge(victim, groupMemory{anon: -used.anon, inactive: -used.inactive, active: -used.active}); err != nil {
			return err
		}

		if err := r.event(victim, func(e *events) { e.oom++; e.killed++ }); err != nil {
			return err
		}
	}
}

func (r memoryRules) largest(dir string) (string, groupMemory, error) {
	names, err := subgroups(dir)
	if err != nil {
		return "", groupMemory{}, err
	}

	if len(names) == 0 {
		g, err := r.usage(dir)
		return dir, g, err
	}

	// Anonymous memory decides: page cache has been reclaimed before.
	var victim string

	var largest groupMemory
	for _, name := range names {
		d, g, err := r.largest(filepath.Join(dir, name))
		if err != nil {
			return "", groupMemory{}, err
		}

		if victim == "" || g.anon > largest.anon {
			victim = d
			largest = g
		}
	}

	return victim, largest, nil
}

// events is the content of memory.events.
type events struct{ high, max, oom, killed int64 }

func (e events) String() string {
	return fmt.Sprintf("low 0\nhigh %d\nmax %d\noom %d\noom_kill %d\noom_group_kill 0\n", e.high, e.max, e.oom, e.killed)
}

// event updates the events of a group and its ancestors; v1 has no such file.
func (r memoryRules) event(dir string, count func(*events)) error {
	for ; r.has(dir, "memory") && !r.isRoot(dir) && !r.V1; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "memory.events"))
		if err != nil {
			return fmt.Errorf("reading memory.events: %w", err)
		}

		var e events
		var low, group int64
		if _, err := fmt.Sscanf(string(content), "low %d\nhigh %d\nmax %d\noom %d\noom_kill %d\noom_group_kill %d\n", &low, &e.high, &e.max, &e.oom, &e.killed, &group); err != nil {
			return fmt.Errorf("parsing memory.events: %w", err)
		}

		count(&e)
		if err := writeFile(filepath.Join(dir, "memory.events"), e.String()); err != nil {
			return err
		}
	}

	return nil
}

// parseBytes implements page_counter_memparse in mm/page_counter.c with memparse in lib/cmdline.c: a number with
// optional K, M, G or T, rounded down to pages, or the word for no limit, which equals the maximum. Empty is 0.
func parseBytes(value, unlimited string) (int64, bool) {
	switch value {
	case "":
		return 0, true
	case unlimited:
		return none, true
	}

	// Suffixes may be lower case.
	scale := int64(1)
	for i, suffix := range []string{"K", "M", "G", "T"} {
		if digits, ok := strings.CutSuffix(strings.ToUpper(value), suffix); ok {
			value = digits
			scale = 1 << (10 * (i + 1))
			break
		}
	}

	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, false
	}

	if n >= unlimitedV1/uint64(scale) {
		return none, true
	}

	return int64(n) * scale / page * page, true
}
