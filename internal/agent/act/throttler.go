// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
)

// Throttler changes limits of containers and puts them back. It is not safe for concurrent use.
type Throttler struct {
	layout  cgroup.Layout
	journal *Journal
	reader  host.Reader
}

// NewThrottler returns a throttler that has undone nothing yet.
func NewThrottler(layout cgroup.Layout, journal *Journal) *Throttler {
	return &Throttler{layout: layout, journal: journal}
}

// minQuota is the least quota that the kernel takes, in microseconds.
const minQuota = 1000

// kindCPU is the kind of units that are containers' limits of cpu.
const kindCPU = "cpu"

func cpuKey(containerID string) string { return kindCPU + "/" + containerID }

// UndoAll puts back all that is throttled.
func (t *Throttler) UndoAll() error { return t.journal.UndoKind(kindCPU) }

// Throttle carries a throttle of a plan out on a container's group. A group that is gone is no error, since nothing is left to do.
func (t *Throttler) Throttle(plan qos.Throttle, group string) error {
	key := cpuKey(plan.ContainerID)
	if plan.To == plan.Original || plan.To == qos.Unlimited {
		return t.journal.Undo(key)
	}
	now, burst, err := t.layout.ReadLimit(&t.reader, group)
	if errors.Is(err, host.ErrGone) {
		return t.journal.Forget(key)
	}
	if err != nil {
		return fmt.Errorf("limit of cpu: %w", err)
	}
	period := int64(now.Period / time.Microsecond)
	quota := max(int64(float64(plan.To)*float64(period)/milli), minQuota)
	names := cpuFiles(t.layout.Version)
	changes := []Change{{Group: group, File: names.quota, Value: names.limit(quota, period)}}
	if t.layout.Version != cgroup.V2 {
		changes = append(changes, Change{Group: group, File: cgroup.FilePeriodV1, Value: strconv.FormatInt(period, 10), Condition: true})
	}
	if changes, err = t.clamp(changes, key, group, quota, int64(burst/time.Microsecond)); err != nil {
		return err
	}
	return t.journal.Change(Unit{Key: key, For: plan.Pod.String(), Changes: changes})
}

const milli = 1000

// clamp adds the burst that goes with a quota, in the order that the kernel takes: it has no burst above the quota. Kernels before 5.14
// have none at all.
func (t *Throttler) clamp(changes []Change, key, group string, quota, now int64) ([]Change, error) {
	file := cpuFiles(t.layout.Version).burst
	text, err := t.journal.Original(key, group, file)
	if errors.Is(err, host.ErrGone) {
		return changes, nil
	}
	if err != nil {
		return nil, err
	}
	original, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	burst := min(original, quota)
	change := Change{Group: group, File: file, Value: strconv.FormatInt(burst, 10)}
	if burst < now {
		return append([]Change{change}, changes...), nil
	}
	return append(changes, change), nil
}

// limitFiles are the files of a limit of cpu.
type limitFiles struct {
	quota, burst string
	v2           bool
}

func cpuFiles(v cgroup.Version) limitFiles {
	if v == cgroup.V2 {
		return limitFiles{quota: cgroup.FileMax, burst: cgroup.FileMaxBurst, v2: true}
	}
	return limitFiles{quota: cgroup.FileQuotaV1, burst: cgroup.FileBurstV1}
}

// limit is a quota, in microseconds, as its file holds it; below 0 for none.
func (f limitFiles) limit(quota, period int64) string {
	text := strconv.FormatInt(quota, 10)
	switch {
	case f.v2 && quota < 0:
		text = "max"
	case quota < 0:
		text = "-1"
	}
	if f.v2 {
		text += " " + strconv.FormatInt(period, 10)
	}
	return text
}
