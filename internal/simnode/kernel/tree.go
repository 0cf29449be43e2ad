// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Tree is a cgroup hierarchy below a directory that can be written to as a kernel's can: what the kernel refuses is refused, with the
// kernel's error. It has the cpu controller's files; each group is a directory, so that readers need know nothing of it.
//
// Rules are those of Linux 6.x: kernel/sched/core.c (tg_set_cfs_bandwidth, __cfs_schedulable).
type Tree struct {
	// Dir is the root of the hierarchy, such as HOST/sys/fs/cgroup on v2 or HOST/sys/fs/cgroup/cpu on v1.
	Dir string
	// V1 has the files and the rules of version 1: a child may have no more than its parent.
	V1 bool
}

const (
	minQuota  = 1000 // microseconds, as all below
	minPeriod = 1000
	maxPeriod = 1_000_000
	none      = -1
)

// Write writes a value to a file of a group, given by its whole path.
func (t *Tree) Write(file, value string) error {
	dir, name := filepath.Split(file)
	if _, err := os.Stat(file); err != nil {
		if _, err := os.Stat(dir); err != nil {
			return &os.PathError{Op: "write", Path: file, Err: syscall.ENODEV}
		}
		return &os.PathError{Op: "open", Path: file, Err: syscall.ENOENT}
	}
	text, err := t.accept(filepath.Clean(dir), name, strings.TrimSpace(value))
	if err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return writeFile(file, text+"\n")
}

// accept returns what the file holds after a value was written, or what the kernel says against it.
func (t *Tree) accept(dir, name, value string) (string, error) {
	now, err := t.bandwidth(dir)
	if err != nil {
		return "", err
	}
	next := now
	switch {
	case t.V1 && name == "cpu.cfs_quota_us":
		next.quota, err = strconv.ParseInt(value, 10, 64)
		if next.quota < 0 {
			next.quota = none
		}
	case t.V1 && name == "cpu.cfs_period_us":
		next.period, err = strconv.ParseInt(value, 10, 64)
	case !t.V1 && name == "cpu.max":
		next, err = parseMax(value, now)
	case name == t.burstFile():
		next.burst, err = strconv.ParseInt(value, 10, 64)
	default:
		return "", syscall.EACCES
	}
	if err != nil {
		return "", syscall.EINVAL
	}
	if err := t.check(dir, next); err != nil {
		return "", err
	}
	switch name {
	case "cpu.max":
		return next.max(), nil
	case "cpu.cfs_quota_us":
		return strconv.FormatInt(next.quota, 10), nil
	}
	return value, nil
}

func (t *Tree) burstFile() string {
	if t.V1 {
		return "cpu.cfs_burst_us"
	}
	return "cpu.max.burst"
}

// bandwidth is a group's limit; quota is none for no limit.
type bandwidth struct{ quota, period, burst int64 }

func (b bandwidth) max() string {
	if b.quota == none {
		return fmt.Sprintf("max %d", b.period)
	}
	return fmt.Sprintf("%d %d", b.quota, b.period)
}

// share is what the limit is of a CPU.
func (b bandwidth) share() float64 { return float64(b.quota) / float64(b.period) }

func parseMax(value string, now bandwidth) (bandwidth, error) {
	fields := strings.Fields(value)
	if len(fields) == 0 || len(fields) > 2 {
		return now, syscall.EINVAL
	}
	var err error
	now.quota = none
	if fields[0] != "max" {
		if now.quota, err = strconv.ParseInt(fields[0], 10, 64); err != nil || now.quota < 0 {
			return now, syscall.EINVAL
		}
	}
	if len(fields) == 2 {
		now.period, err = strconv.ParseInt(fields[1], 10, 64)
	}
	return now, err
}

func (t *Tree) bandwidth(dir string) (bandwidth, error) {
	b := bandwidth{quota: none, period: 100_000}
	number := func(file string, into *int64) error {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			*into, err = strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		}
		return err
	}
	if err := number(t.burstFile(), &b.burst); err != nil {
		return b, err
	}
	if t.V1 {
		return b, errors.Join(number("cpu.cfs_quota_us", &b.quota), number("cpu.cfs_period_us", &b.period))
	}
	content, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if errors.Is(err, os.ErrNotExist) {
		return b, nil // the root has none
	}
	if err != nil {
		return b, fmt.Errorf("read: %w", err)
	}
	return parseMax(string(content), b)
}

// check says what the kernel says against a limit.
func (t *Tree) check(dir string, b bandwidth) error {
	if b.period < minPeriod || b.period > maxPeriod || b.quota != none && b.quota < minQuota {
		return syscall.EINVAL
	}
	if b.burst < 0 || b.quota != none && b.burst > b.quota {
		return syscall.EINVAL
	}
	if !t.V1 || b.quota == none && dir == filepath.Clean(t.Dir) {
		return nil
	}
	for parent := filepath.Dir(dir); b.quota != none && strings.HasPrefix(parent, filepath.Clean(t.Dir)); parent = filepath.Dir(parent) {
		above, err := t.bandwidth(parent)
		if err != nil {
			return err
		}
		if above.quota != none && b.share() > above.share() {
			return syscall.EINVAL
		}
	}
	return t.below(dir, b)
}

// below looks at the groups below one: none may have more.
func (t *Tree) below(dir string, b bandwidth) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child, err := t.bandwidth(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if b.quota != none && child.quota != none && child.share() > b.share() {
			return syscall.EINVAL
		}
	}
	return nil
}

// Make makes a group, and those above it, with the files of the cpu controller.
func (t *Tree) Make(group string) error {
	dir := filepath.Clean(t.Dir)
	for part := range strings.SplitSeq(group, "/") {
		dir = filepath.Join(dir, part)
		if _, err := os.Stat(dir); err == nil {
			continue
		}
		files := map[string]string{"cpu.max": "max 100000\n", "cpu.max.burst": "0\n", "cpu.stat": stat(0, 0, 0, 0)}
		if t.V1 {
			files = map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "cpu.cfs_burst_us": "0\n"}
		}
		for name, content := range files {
			if err := writeFile(filepath.Join(dir, name), content); err != nil {
				return err
			}
		}
	}
	return nil
}

func stat(usage, periods, throttled, waited int64) string {
	return fmt.Sprintf("usage_usec %d\nuser_usec %d\nsystem_usec 0\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", usage, usage, periods, throttled, waited)
}

// Run lets a group of a v2 tree want cores for a while: it gets what its own limit and those above it leave, which is counted in it and
// in all above, and is returned.
func (t *Tree) Run(group string, cores float64, span time.Duration) (float64, error) {
	got := cores
	root := filepath.Clean(t.Dir)
	for dir := filepath.Join(root, group); dir != root; dir = filepath.Dir(dir) {
		b, err := t.bandwidth(dir)
		if err != nil {
			return 0, err
		}
		if b.quota != none {
			got = min(got, b.share())
		}
	}
	for dir := filepath.Join(root, group); dir != root; dir = filepath.Dir(dir) {
		if err := t.count(dir, got, cores, span); err != nil {
			return 0, err
		}
	}
	return got, nil
}

func (t *Tree) count(dir string, got, wanted float64, span time.Duration) error {
	file := filepath.Join(dir, "cpu.stat")
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("count cpu: %w", err)
	}
	var n [6]int64
	if _, err := fmt.Sscanf(string(content), "usage_usec %d\nuser_usec %d\nsystem_usec %d\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
		return fmt.Errorf("count cpu: %w", err)
	}
	b, err := t.bandwidth(dir)
	if err != nil {
		return err
	}
	n[0] += int64(got * float64(span/time.Microsecond))
	if b.quota != none {
		periods := int64(span/time.Microsecond) / b.period
		n[3] += periods
		if got < wanted {
			n[4] += periods
			n[5] += int64((wanted - got) * float64(span/time.Microsecond))
		}
	}
	return writeFile(file, stat(n[0], n[3], n[4], n[5]))
}
