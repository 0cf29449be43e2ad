// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// Undo puts back what a unit has changed and forgets it. Nothing is done for a unit that the journal does not hold. What fails stays in
// the journal and is in the error.
func (j *Journal) Undo(key string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entries[key]
	if e == nil {
		return nil
	}
	return errors.Join(j.undo([]*Entry{e}), j.save())
}

// UndoAll puts everything back that the journal holds: at the start, for an agent that was killed. What fails stays in the journal and is
// in the error.
func (j *Journal) UndoAll() error { return j.undoIf(func(*Entry) bool { return true }) }

// UndoKind is UndoAll for the units of a kind, whose keys begin with it and a slash: when those who change such things end.
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

// undo puts units back and takes those that are done out of the journal, on the disk not yet: should the agent be killed, they are undone
// once more, which changes nothing. A kernel takes a child's limit only below its parent's, so what it refuses is tried again as long as
// others succeed.
func (j *Journal) undo(list []*Entry) error {
	for {
		moved := false
		var errs []error
		var left []*Entry
		for _, e := range list {
			wrote, err := j.undoEntry(e)
			moved = moved || wrote
			if err != nil {
				errs, left = append(errs, err), append(left, e)
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

// undoEntry writes what is to be put back of a unit, the file that was changed last first. wrote tells that something was written.
func (j *Journal) undoEntry(e *Entry) (wrote bool, err error) {
	if !j.conditionsHold(e) {
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
		now, err := j.read(h.Group, h.File)
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
		err = j.restoreFile(h)
		switch {
		case err == nil:
			wrote = true
		case j.isGone(h.Group, h.File):
		default:
			refused = errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBUSY)
			errs = append(errs, fmt.Errorf("restore %s: %s to %q: %w", e.Subject, h.File, h.Original, err))
		}
	}
	if theirs && refused && len(errs) == 1 {
		// What somebody else has set does not go with what was there before.
		return wrote, nil
	}
	return wrote, errors.Join(errs...)
}

// restoreFile writes what a file held. Kernels before 6.17 do not take back a list of CPUs from a group with processes, which had none and
// used its parent's: the parent's is what it gets then.
func (j *Journal) restoreFile(h *FileRecord) error {
	path, err := j.layout.SettingFile(h.Group, h.File)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	err = j.files.Write(path, h.Original)
	if h.Original != "" || !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	effective, readErr := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(path)), h.File+".effective"))
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	return j.files.Write(path, strings.TrimSpace(string(effective)))
}

func (j *Journal) conditionsHold(e *Entry) bool {
	for i := range e.Files {
		h := &e.Files[i]
		if !h.Condition {
			continue
		}
		now, err := j.read(h.Group, h.File)
		if err == nil && !cgroup.EqualSettings(h.File, now, h.Set) {
			return false
		}
	}
	return true
}

// dropGone forgets the files of a unit that are no more, and a unit without any.
func (j *Journal) dropGone(key string) error {
	e := j.entries[key]
	if e == nil {
		return nil
	}
	kept := j.withoutGone(e)
	if len(kept.Files) == 0 {
		return j.forget(key)
	}
	return j.put(&change{entry: kept})
}

// withoutGone is an entry without the files that are no more.
func (j *Journal) withoutGone(e *Entry) *Entry {
	kept := &Entry{Key: e.Key, Subject: e.Subject, Seq: e.Seq}
	for _, h := range e.Files {
		if !j.isGone(h.Group, h.File) {
			kept.Files = append(kept.Files, h)
		}
	}
	return kept
}

// sweep forgets what is held of groups that are no more, when it has become twice as much since the last time: pods that end while
// something is taken from them are nobody's to undo. It is on the disk with the next change.
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
		kept := j.withoutGone(e)
		if held += len(kept.Files); len(kept.Files) == 0 {
			delete(j.entries, key)
			continue
		}
		e.Files = kept.Files
	}
	j.sweepThreshold = 2 * held
}

// Forget drops a unit without writing anything, as for a container that is gone.
func (j *Journal) Forget(key string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.forget(key)
}

// forget drops a unit. Should that fail, it is undone once more than needed, which changes nothing.
func (j *Journal) forget(key string) error {
	if j.entries[key] == nil {
		return nil
	}
	delete(j.entries, key)
	return j.save()
}
