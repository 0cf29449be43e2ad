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
)

const (
	minQuota      = 1000 // microseconds, as all below
	minPeriod     = 1000
	maxPeriod     = 1_000_000
	defaultPeriod = 100_000
	maxRuntime    = 1 << 44 // maximum of quota plus burst

	minWeight   = 1
	usualWeight = 100
	maxWeight   = 10_000

	minShares   = 2
	usualShares = 1024
	maxShares   = 1 << 18
	idleShares  = 3
)

// cpuRules are the rules of the cpu controller.
type cpuRules struct{ hierarchy }

func (r cpuRules) newCPU() map[string]string {
	if r.V1 {
		return map[string]string{
			"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "cpu.cfs_burst_us": "0\n", "cpu.shares": "1024\n", "cpu.idle": "0\n",
			"cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n", "cpuacct.usage": "0\n",
		}
	}

	return map[string]string{"cpu.max": "max 100000\n", "cpu.max.burst": "0\n", "cpu.weight": "100\n", "cpu.idle": "0\n"}
}

// setCPU applies a value of a file of the cpu controller.
func (r cpuRules) setCPU(dir, name, value string) error {
	switch {
	case name == "cpu.idle":
		return r.setIdle(dir, value)
	case name == "cpu.weight" && !r.V1, name == "cpu.shares" && r.V1:
		return r.setWeight(dir, name, value)
	}

	now, err := r.bandwidth(dir)
	if err != nil {
		return err
	}

	// Quota, period and burst are checked together, whichever of them is written.
	next := now
	switch {
	case r.V1 && name == "cpu.cfs_quota_us":
		next.quota, err = strconv.ParseInt(value, 10, 64)
		if next.quota < 0 {
			next.quota = none
		}

		value = strconv.FormatInt(next.quota, 10)

	case r.V1 && name == "cpu.cfs_period_us":
		next.period, err = strconv.ParseInt(value, 10, 64)
	case !r.V1 && name == "cpu.max":
		next, err = parseMax(value, now)
		value = next.max()
	case name == r.burstFile():
		next.burst, err = strconv.ParseInt(value, 10, 64)
	default:
		return errReadOnly
	}

	if err != nil {
		return syscall.EINVAL
	}

	if err := r.check(dir, next); err != nil {
		return err
	}

	return set(dir, name, value)
}

// setIdle implements cpu_idle_write_s64 and sched_group_set_idle in kernel/sched/fair.c: 0 or 1 sets the weight to the
// default or to the minimum.
func (r cpuRules) setIdle(dir, value string) error {
	if r.isRoot(dir) || value != "0" && value != "1" {
		return syscall.EINVAL
	}

	if text(dir, "cpu.idle") == value {
		return nil
	}

	weight := strconv.Itoa(usualWeight)
	shares := strconv.Itoa(usualShares)
	if value == "1" {
		weight = "0"
		shares = strconv.Itoa(idleShares)
	}

	if err := set(dir, "cpu.idle", value); err != nil {
		return err
	}

	if r.V1 {
		return set(dir, "cpu.shares", shares)
	}

	return set(dir, "cpu.weight", weight)
}

// setWeight implements cpu_weight_write_u64 (ERANGE outside 1 to 10000) or cpu_shares_write_u64 in kernel/sched/core.c,
// which clamps shares to 2 to 262144, and sched_group_set_shares in kernel/sched/fair.c, which rejects both for the
// root and for idle groups.
func (r cpuRules) setWeight(dir, name, value string) error {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return syscall.EINVAL
	}

	if !r.V1 && (n < minWeight || n > maxWeight) {
		return syscall.ERANGE
	}

	if r.isRoot(dir) || text(dir, "cpu.idle") == "1" {
		return syscall.EINVAL
	}

	if r.V1 {
		n = min(max(n, minShares), maxShares)
	}

	return set(dir, name, strconv.FormatUint(n, 10))
}

func (r cpuRules) burstFile() string {
	if r.V1 {
		return "cpu.cfs_burst_us"
	}

	return "cpu.max.burst"
}

// bandwidth is a group's CPU limit in microseconds; quota is none without a limit.
type bandwidth struct{ quota, period, burst int64 }

func (b bandwidth) max() string {
	if b.quota == none {
		return fmt.Sprintf("max %d", b.period)
	}

	return fmt.Sprintf("%d %d", b.quota, b.period)
}

// share returns the limit in CPUs.
func (b bandwidth) share() float64 { return float64(b.quota) / float64(b.period) }

// parseMax implements cpu_period_quota_parse in kernel/sched/core.c.
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
		if now.period, err = strconv.ParseInt(fields[1], 10, 64); err != nil {
			return now, syscall.EINVAL
		}
	}

	return now, nil
}

func (r cpuRules) bandwidth(dir string) (bandwidth, error) {
	b := bandwidth{quota: none, period: defaultPeriod}
	if err := number(dir, r.burstFile(), &b.burst); err != nil {
		return b, err
	}

	if r.V1 {
		return b, errors.Join(number(dir, "cpu.cfs_quota_us", &b.quota), number(dir, "cpu.cfs_period_us", &b.period))
	}

	content, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if errors.Is(err, os.ErrNotExist) {
		return b, nil // the root has no limit
	}
	if err != nil {
		return b, fmt.Errorf("reading cpu.max: %w", err)
	}

	return parseMax(string(content), b)
}

// check implements the checks of tg_set_cfs_bandwidth in kernel/sched/core.c.
func (r cpuRules) check(dir string, b bandwidth) error {
	if r.isRoot(dir) {
		return syscall.EINVAL
	}

	if b.period < minPeriod || b.period > maxPeriod || b.quota != none && b.quota < minQuota {
		return syscall.EINVAL
	}

	if b.burst < 0 || b.quota != none && (b.burst > b.quota || b.burst+b.quota > maxRuntime || b.quota > maxRuntime) {
		return syscall.EINVAL
	}

	if !r.V1 {
		return nil // v2 accepts a child's limit above its parent's
	}

	// tg_cfs_schedulable_down in kernel/sched/core.c checks the whole tree: no limit may exceed that of the nearest
	// ancestor with one.
	ancestor := bandwidth{quota: none}
	for parent := filepath.Dir(dir); r.has(parent, "cpu") && ancestor.quota == none; parent = filepath.Dir(parent) {
		var err error
		if ancestor, err = r.bandwidth(parent); err != nil {
			return err
		}
	}

	if ancestor.quota == none {
		return r.below(dir, b)
	}

	if b.quota == none {
		return r.below(dir, ancestor)
	}

	if b.share() > ancestor.share() {
		return syscall.EINVAL
	}

	return r.below(dir, b)
}

// below checks the groups below: none may exceed the limit.
func (r cpuRules) below(dir string, b bandwidth) error {
	names, err := subgroups(dir)
	if err != nil || b.quota == none {
		return err
	}

	for _, name := range names {
		child, err := r.bandwidth(filepath.Join(dir, name))
		if err != nil {
			return err
		}

		// A child without a limit has that of its parent.
		if child.quota == none {
			child = b
		}

		if child.share() > b.share() {
			return syscall.EINVAL
		}

		if err := r.below(filepath.Join(dir, name), child); err != nil {
			return err
		}
	}

	return nil
}
