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
		var left []*Entry
		for _, e := range list {
			wrote, err := j.undoEntry(e)
			moved = moved || wrote

			if err != nil {
				errs = append(errs, err)
				left = append(left, e)
				continue
			}

			moved = true
			delete(j.entries, e.Key)
		}

		if list = left; len(list) == 0 || !moved {
			return errors.Join(errs...)
		}
	}
}

// undoEntry restores the files of a unit, the last changed first. wrote reports that a file was written.
func (j *Journal) undoEntry(e *Entry) (wrote bool, err error) {
	if !j.files.conditionsHold(e) {
		return false, nil
	}

	var errs []error
	var theirs, refused bool
	for i := range slices.Backward(e.Files) {
		h := &e.Files[i]
		if h.Condition {
			continue
		}

		if over := j.recordAbove(e, h.Group, h.File); over != nil {
			over.Original = h.Original
			continue
		}

		now, err := j.files.read(h.Group, h.File)
		switch {
		case errors.Is(err, host.ErrGone):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("restore %s: %w", e.Subject, err))
			continue
		case !e.isOwnValue(h, now):
			theirs = true
			continue
		case cgroup.EqualSettings(h.File, now, h.Original):
			continue
		}

		err = j.files.restore(h)
		switch {
		case err == nil:
			wrote = true
		case j.files.isGone(h.Group, h.File):
		default:
			refused = errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBUSY)
			errs = append(errs, fmt.Errorf("restore %s: %s to %q: %w", e.Subject, h.File, h.Original, err))
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

	kept := j.files.withoutGone(e)
	if len(kept.Files) == 0 {
		return j.forget(key)
	}

	return j.put(&change{entry: kept})
}

// sweep removes entries of removed cgroups when the journal has doubled since the last time, since pods may end while they are throttled.
// The next change writes it to disk.
func (j *Journal) sweep() {
	held := 0
	for _, e := range j.entries {
		held += len(e.Files)
	}

	if held < max(j.sweepThreshold, minSweepFiles) {
		return
	}

	held = 0
	for key, e := range j.entries {
		kept := j.files.withoutGone(e)
		held += len(kept.Files)

		if len(kept.Files) == 0 {
			delete(j.entries, key)
			continue
		}

		e.Files = kept.Files
	}

	j.sweepThreshold = 2 * held
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
