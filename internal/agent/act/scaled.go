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
)

// unscale writes the limits of a unit again that the kernel has scaled: quota, period and burst of a throttled group, by the same factor.
// Afterward the files have the text that the unit wrote, so that a change by another process can be told from one by the kernel.
func (s settingFiles) unscale(e *Entry) error {
	if e == nil {
		return nil
	}

	names := cpuLimitFiles(s.layout.Version)
	var errs []error
	for i := range e.Files {
		if record := &e.Files[i]; record.File == names.quota && !record.Condition {
			errs = append(errs, s.unscaleGroup(e, record, names))
		}
	}

	return errors.Join(errs...)
}

func (s settingFiles) unscaleGroup(e *Entry, quota *FileRecord, names limitFiles) error {
	now, burst, err := s.layout.ReadLimit(&host.Reader{}, quota.Group)
	if errors.Is(err, host.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the CPU limit of %s: %w", e.Subject, err)
	}

	for _, text := range []string{quota.Set, quota.Before} {
		limit, ok := names.parse(text, e.record(quota.Group, cgroup.FilePeriodV1))
		if !ok || !now.IsScaled(limit) {
			continue
		}

		// The kernel accepts no burst above the quota, and on v1 no quota above the parent's for the period in force.
		var errs []error
		if burst > 0 {
			unscaled := float64(burst) * float64(limit.Period) / float64(now.Period)
			errs = append(errs, s.write(quota.Group, names.burst, nearestBurst(e.record(quota.Group, names.burst), unscaled)))
		}

		errs = append(errs, s.write(quota.Group, names.quota, names.format(limit)))
		if !names.v2 {
			errs = append(errs, s.write(quota.Group, cgroup.FilePeriodV1, micros(limit.Period)))
		}

		if err := errors.Join(errs...); err != nil && !s.isGone(quota.Group, quota.File) {
			return fmt.Errorf("resetting the CPU limit of %s that the kernel scaled: %w", e.Subject, err)
		}

		return nil
	}

	return nil
}

// nearestBurst returns the recorded burst that a computed one is but for the kernel's rounding, else the computed one.
func nearestBurst(record *FileRecord, nanoseconds float64) string {
	const rounding = 10 * time.Microsecond
	burst := time.Duration(nanoseconds).Round(time.Microsecond)
	if record == nil {
		return micros(burst)
	}

	for _, text := range []string{record.Set, record.Before} {
		n, err := strconv.ParseInt(text, 10, 64)
		if recorded := time.Duration(n) * time.Microsecond; err == nil && (recorded-burst).Abs() <= rounding {
			return text
		}
	}

	return micros(burst)
}

func (s settingFiles) write(group, file, value string) error {
	path, err := s.layout.SettingFile(group, file)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}

	return s.writer.Write(path, value)
}

// parse returns the limit that a unit wrote; false if it is unknown. On v1 the period is in a record of its own.
func (f limitFiles) parse(text string, period *FileRecord) (cgroup.Bandwidth, bool) {
	length := int64(0)
	if !f.v2 {
		if period == nil {
			return cgroup.Bandwidth{}, false
		}

		var err error
		if length, err = strconv.ParseInt(period.Set, 10, 64); err != nil {
			return cgroup.Bandwidth{}, false
		}
	}

	limit, err := f.parseLimit(text, time.Duration(length)*time.Microsecond)
	return limit, err == nil
}
