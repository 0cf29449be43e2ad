// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
)

// ScaleLimit does what the period timer of a throttled group does when it falls behind (sched_cfs_period_timer in kernel/sched/fair.c): it
// doubles period, quota and burst, up to a period of a second. A group without a limit, or with the longest period, stays as it is.
func (t *Tree) ScaleLimit(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	r := t.hierarchy().cpu()
	dir := filepath.Join(r.root("cpu"), group)
	b, err := r.bandwidth(dir)
	if err != nil {
		return fmt.Errorf("scaling a limit: %w", err)
	}

	if b.quota == none || 2*b.period > maxPeriod {
		return nil
	}

	b = bandwidth{quota: 2 * b.quota, period: 2 * b.period, burst: 2 * b.burst}
	err = set(dir, r.burstFile(), strconv.FormatInt(b.burst, 10))
	if r.V1 {
		return errors.Join(err, set(dir, "cpu.cfs_quota_us", strconv.FormatInt(b.quota, 10)), set(dir, "cpu.cfs_period_us", strconv.FormatInt(b.period, 10)))
	}

	return errors.Join(err, set(dir, "cpu.max", b.max()))
}
