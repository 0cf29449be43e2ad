// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
)

// Files writes to files of the kernel.
type Files interface {
	// Write writes a value to a file that is there; it makes none.
	Write(file, value string) error
}

// KernelFiles are the real ones.
type KernelFiles struct{}

// Write implements Files. The file is opened without O_CREATE: in a directory that is no cgroup a plain file would come to be.
func (KernelFiles) Write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err //nolint:wrapcheck // The error names the file.
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Throttler changes limits of containers and puts them back. It is not safe for concurrent use.
type Throttler struct {
	layout  cgroup.Layout
	files   Files
	journal *Journal
	reader  host.Reader
}

// NewThrottler returns a throttler that has undone nothing yet.
func NewThrottler(layout cgroup.Layout, files Files, journal *Journal) *Throttler {
	return &Throttler{layout: layout, files: files, journal: journal}
}

// minQuota is the least quota that the kernel takes, in microseconds.
const minQuota = 1000

// Throttle carries a throttle of a plan out on a container's group. The order is: journal, kernel; and to give all back: kernel,
// journal. A group that is gone is no error, since nothing is left to do.
func (t *Throttler) Throttle(plan qos.Throttle, group string) error {
	now, err := t.limit(group)
	if errors.Is(err, host.ErrGone) {
		return t.journal.remove(plan.ContainerID)
	}
	if err != nil {
		return err
	}
	entry, had := t.journal.entries[plan.ContainerID]
	if had && !ours(now, entry) {
		had = false // The kubelet has set another one since, which is the original from now on.
	}
	if !had {
		entry = Entry{ContainerID: plan.ContainerID, Group: group, Pod: plan.Pod.String(), Original: now}
	}
	if had && plan.To == plan.Original {
		return t.undo(entry, now)
	}
	next := now
	next.Quota = max(int64(plan.To)*now.Period/1000, minQuota)
	// The kernel takes no burst above the quota.
	next.Burst = min(now.Burst, next.Quota)
	if next.Quota > entry.Set.Quota && had {
		next.Burst = min(entry.Original.Burst, next.Quota) // on the way back
	}
	entry.Before, entry.Set = now, next
	if err := t.journal.put(entry); err != nil {
		return err
	}
	if err := t.write(group, now, next); err != nil && !errors.Is(err, host.ErrGone) {
		return fmt.Errorf("throttle %s: %w", plan.Pod, err)
	}
	return nil
}

// UndoAll puts everything back that the journal holds: at the end, and at the start, for an agent that was killed. Entries that fail
// stay in the journal and are in the error.
func (t *Throttler) UndoAll() error {
	var errs []error
	for _, e := range t.journal.Entries() {
		now, err := t.limit(e.Group)
		if err == nil {
			err = t.undo(e, now)
		} else if errors.Is(err, host.ErrGone) {
			err = t.journal.remove(e.ContainerID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// undo puts the original back, unless somebody else has set another limit since.
func (t *Throttler) undo(e Entry, now limit) error {
	if ours(now, e) {
		if err := t.write(e.Group, now, e.Original); err != nil && !errors.Is(err, host.ErrGone) {
			return fmt.Errorf("restore %s: %w", e.Pod, err)
		}
	}
	return t.journal.remove(e.ContainerID)
}

// ours tells whether a limit is one that this entry has written or was about to: an agent that is killed between two writes leaves the
// old quota with the new burst.
func ours(now limit, e Entry) bool {
	return now.Period == e.Set.Period && (now.Quota == e.Set.Quota || now.Quota == e.Before.Quota)
}

// write brings a group from one limit to another in an order that the kernel takes: burst down before the quota, up after it.
func (t *Throttler) write(group string, from, to limit) error {
	quota, burst := t.layout.LimitFiles(group)
	steps := []struct {
		file, value string
		needed      bool
	}{
		{burst, strconv.FormatInt(to.Burst, 10), to.Burst < from.Burst},
		{quota, t.quotaText(to.Quota), to.Quota != from.Quota},
		{burst, strconv.FormatInt(to.Burst, 10), to.Burst > from.Burst},
	}
	for _, s := range steps {
		if !s.needed {
			continue
		}
		if err := t.files.Write(s.file, s.value); err != nil {
			if _, gone := t.limit(group); errors.Is(gone, host.ErrGone) {
				return host.ErrGone
			}
			return fmt.Errorf("write %s: %w", s.value, err)
		}
	}
	return nil
}

func (t *Throttler) quotaText(quota int64) string {
	switch {
	case quota >= 0:
		return strconv.FormatInt(quota, 10)
	case t.layout.Version == cgroup.V2:
		return "max"
	}
	return "-1"
}

func (t *Throttler) limit(group string) (limit, error) {
	b, burst, err := t.layout.ReadLimit(&t.reader, group)
	if err != nil {
		return limit{}, fmt.Errorf("limit of cpu: %w", err)
	}
	l := limit{Quota: -1, Period: int64(b.Period / time.Microsecond), Burst: int64(burst / time.Microsecond)}
	if !b.Unlimited() {
		l.Quota = int64(b.Quota / time.Microsecond)
	}
	return l, nil
}
