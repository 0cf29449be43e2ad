// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// Undo restores a unit and removes its entry, if there is one. Failed files stay in the journal and are in the error.
func (j *Journal) Undo(key string) error {
	j.mu.Lock()
	defer j.mu.Unlock()

	e := j.entries[key]
	if e == nil {
		return nil
	}

	return errors.Join(j.undo([]*Entry{e}), j.save())
}

// UndoAll restores everything in the journal, as at the start after an agent was killed. Failed files stay in the journal and are in the
// error.
func (j *Journal) UndoAll() error { return j.undoIf(func(*Entry) bool { return true }) }

// UndoUnless is UndoAll for the units whose keys are not kept.
func (j *Journal) UndoUnless(keep func(key string) bool) error {
	return j.undoIf(func(e *Entry) bool { return !keep(e.Key) })
}

// UndoKind is UndoAll for the units of a kind, whose keys start with the kind and a slash.
func (j *Journal) UndoKind(kind string) error {
	return j.undoIf(func(e *Entry) bool { return strings.HasPrefix(e.Key, kind+"/") })
}

func (j *Journal) undoIf(chosen func(*Entry) bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()

	newestFirst := slices.DeleteFunc(j.entriesBySeq(), func(e *Entry) bool { return !chosen(e) })
	if len(newestFirst) == 0 {
		return nil
	}

	slices.Reverse(newestFirst)
	return errors.Join(j.undo(newestFirst), j.save())
}

// undo restores units and removes them from the journal in memory; if the agent is killed before the next save they are restored again,
// which changes nothing. The kernel may reject a child's limit above its parent's, so rejected writes are retried while others succeed.
func (j *Journal) undo(list []*Entry) error {
	for {
		moved := false
		var errs []error
		var failed []*Entry
		for _, e := range list {
			wrote, err := j.undoEntry(e)
			moved = moved || wrote

			if err != nil {
				errs = append(errs, err)
				failed = append(failed, e)
				continue
			}

			moved = true
			delete(j.entries, e.Key)
		}

		if list = failed; len(list) == 0 || !moved {
			return errors.Join(errs...)
		}
	}
}

// undoEntry restores the files of a unit, the last changed first. wrote reports that a file was written.
func (j *Journal) undoEntry(e *Entry) (wrote bool, err error) {
	var errs []error
	// A limit that cannot be reset keeps the unit in the journal, and the other files are restored all the same.
	if err := unscaleGroups(j, e.groups()); err != nil {
		errs = append(errs, err)
	}

	if !j.files.conditionsHold(e) {
		return false, errors.Join(errs...)
	}

	var theirs, refused bool
	for i := range slices.Backward(e.Files) {
		record := &e.Files[i]
		if record.Condition {
			continue
		}

		if above := j.recordAbove(e, record.Group, record.File); above != nil {
			// Another process may have replaced the value that the unit above found.
			if e.isOwnValue(record, above.Original) {
				above.Original = record.Original
			}
			continue
		}

		now, err := j.files.read(record.Group, record.File)
		switch {
		case errors.Is(err, host.ErrGone):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("restoring %s: %w", e.Subject, err))
			continue
		case !e.isOwnValue(record, now):
			theirs = true
			continue
		case cgroup.EqualSettings(record.File, now, record.Original):
			continue
		}

		err = j.files.restore(record)
		switch {
		case err == nil:
			wrote = true
		case j.files.isGone(record.Group, record.File):
		default:
			refused = errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBUSY)
			errs = append(errs, fmt.Errorf("restoring %s: setting %s to %q: %w", e.Subject, record.File, record.Original, err))
		}
	}

	if theirs && refused && len(errs) == 1 {
		// The value of another process contradicts the original.
		return wrote, nil
	}

	return wrote, errors.Join(errs...)
}

// dropGone removes the removed files of a unit from the journal, and a unit without files.
func (j *Journal) dropGone(key string) error {
	e := j.entries[key]
	if e == nil {
		return nil
	}

	existing := j.files.withoutGone(e)
	if len(existing.Files) == 0 {
		return j.forget(key)
	}

	return j.put(&change{entry: existing})
}

// sweep removes entries of removed cgroups when the journal has doubled since the last time, since pods may end while they are throttled.
// The next change writes it to disk.
func (j *Journal) sweep() {
	files := 0
	for _, e := range j.entries {
		files += len(e.Files)
	}

	if files < max(j.sweepThreshold, minSweepFiles) {
		return
	}

	files = 0
	for key, e := range j.entries {
		existing := j.files.withoutGone(e)
		files += len(existing.Files)

		if len(existing.Files) == 0 {
			delete(j.entries, key)
			continue
		}

		e.Files = existing.Files
	}

	j.sweepThreshold = 2 * files
}

// Forget removes an entry without writing any file, as for a removed container.
func (j *Journal) Forget(key string) error {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.forget(key)
}

// forget removes an entry. If saving fails, it is restored once more than needed, which changes nothing.
func (j *Journal) forget(key string) error {
	if j.entries[key] == nil {
		return nil
	}

	delete(j.entries, key)
	return j.save()
}
