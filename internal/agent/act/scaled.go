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

// unscaleGroups writes the limits of groups again that the kernel has scaled: quota, period and burst of a throttled group, by the same factor,
// whichever unit wrote them. Afterward the files have the text that the unit wrote, so that a change by another process can be told from one by
// the kernel.
func unscaleGroups(j *Journal, groups map[string]bool) error {
	names := cpuLimitFiles(j.files.layout.Version)
	var errs []error
	for _, e := range j.entries {
		for i := range e.Files {
			if record := &e.Files[i]; groups[record.Group] && record.File == names.quota && !record.Condition {
				errs = append(errs, j.files.unscaleGroup(e, record, names))
			}
		}
	}

	return errors.Join(errs...)
}

// groups returns the groups that a unit has changed.
func (e *Entry) groups() map[string]bool {
	out := map[string]bool{}
	if e == nil {
		return out
	}

	for i := range e.Files {
		out[e.Files[i].Group] = true
	}

	return out
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

		// The kernel accepts no burst above the quota.
		var errs []error
		if burst > 0 {
			unscaled := float64(burst) * float64(limit.Period) / float64(now.Period)
			errs = append(errs, s.write(quota.Group, names.burst, nearestBurst(e.record(quota.Group, names.burst), unscaled)))
		}

		errs = append(errs, s.writeLimit(quota.Group, names, now, limit))
		if err := errors.Join(errs...); err != nil && !s.isGone(quota.Group, quota.File) {
			return fmt.Errorf("resetting the CPU limit of %s that the kernel scaled: %w", e.Subject, err)
		}

		return nil
	}

	return nil
}

// writeLimit replaces a limit. On v1 the quota and the period are two files, and between the two writes the group has more or less than before
// and after: the kernel refuses more than the parent has and less than a child has. So either order may be the one that it accepts, and a limit of
// which half is refused is put back.
func (s settingFiles) writeLimit(group string, names limitFiles, now, next cgroup.Bandwidth) error {
	if names.v2 {
		return s.write(group, names.quota, names.format(next))
	}

	quota := fileChange{names.quota, names.format(now), names.format(next)}
	period := fileChange{cgroup.FilePeriodV1, micros(now.Period), micros(next.Period)}

	err := s.writeBoth(group, quota, period)
	if err != nil {
		err = s.writeBoth(group, period, quota)
	}

	return err
}

type fileChange struct{ file, from, to string }

// writeBoth writes two files, or none if one of the writes is refused.
func (s settingFiles) writeBoth(group string, first, second fileChange) error {
	if err := s.write(group, first.file, first.to); err != nil {
		return err
	}

	err := s.write(group, second.file, second.to)
	if err != nil {
		err = errors.Join(err, s.write(group, first.file, first.from))
	}

	return err
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
