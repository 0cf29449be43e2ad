// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// ErrJournal reports an unusable journal; without one nothing is changed.
var ErrJournal = errors.New("journal of changes")

// ErrPaused reports that nothing is changed because Crane is paused, or because the agent has just started and does not know yet.
var ErrPaused = errors.New("crane is paused, or its pause state is still unknown")

// ErrNewerJournal reports a journal that a newer version of the agent wrote.
var ErrNewerJournal = errors.New("written by a newer version")

// minSweepFiles is the number of files from which a journal is swept.
const minSweepFiles = 256

// maxEntries bounds a journal: all containers of the largest node with several kinds of changes each.
const maxEntries = 10_000

// Unit is a group of settings that are changed and undone together, such as quota and burst of a container.
type Unit struct {
	// Key identifies the unit by kind and target, as in cpu/CONTAINER-ID. Of two units that share a file, the one changed first is below
	// the other.
	Key string
	// Subject is the target in messages, such as a pod's name.
	Subject string
	// Changes are in an order of writes that the kernel accepts. A unit that changes cpu.idle must also contain the weight, before it,
	// because the kernel resets it.
	Changes []Change
}

// Change is the desired value of a cgroup file.
type Change struct {
	// Group is a path below a hierarchy's root, File a cgroup setting.
	Group, File string
	// Value is in the kernel's format. It is not written if the file already has it.
	Value string
	// Condition marks a file that is only watched: if it changes, the unit is no longer undone.
	Condition bool
}

// Entry is a changed unit, or one about to be changed.
type Entry struct {
	Key     string `json:"key"`
	Subject string `json:"for"`
	// Seq increases with the time of a unit's first change.
	Seq   uint64       `json:"seq"`
	Files []FileRecord `json:"files"`
}

// FileRecord is a file of a unit.
type FileRecord struct {
	Group string `json:"group"`
	File  string `json:"file"`
	// Original is the value to restore, Set the value last written or about to be written, and Before the value before that; one of the
	// latter two is in force.
	Original  string `json:"original"`
	Set       string `json:"set"`
	Before    string `json:"before"`
	Condition bool   `json:"condition,omitempty"`
}

func (f *FileRecord) matches(group, file string) bool { return f.Group == group && f.File == file }

// isOwnValue reports whether a value was written, or about to be replaced, by this unit; a killed agent leaves either.
func (e *Entry) isOwnValue(f *FileRecord, now string) bool {
	if cgroup.EqualSettings(f.File, now, f.Set) || cgroup.EqualSettings(f.File, now, f.Before) {
		return true
	}

	// With cpu.idle the kernel sets the weight to the least and back to the default (sched_group_set_idle in kernel/sched/fair.c).
	if idle := e.record(f.Group, cgroup.FileIdle); idle == nil || idle.Condition {
		return false
	}

	return f.File == cgroup.FileWeight && (now == "0" || now == "100") || f.File == cgroup.FileSharesV1 && (now == "3" || now == "1024")
}

// Journal changes cgroup settings: the old and the new value of a file are on disk before it is written, so that Undo, UndoAll or the
// UndoAll of the next agent restores it. Values written by other processes meanwhile are kept. It is safe for concurrent use; a call takes
// as long as a disk sync.
type Journal struct {
	path  string
	files settingFiles
	// Stopped reports whether Crane is paused or may be, so that nothing new is changed; nil for never. Changes are still undone.
	Stopped func() bool
	// replace is replaced by tests that write thousands of journals.
	replace func(path string, content []byte) error

	mu      sync.Mutex
	entries map[string]*Entry
	last    uint64 // the highest Seq
	// sweepThreshold is the number of recorded files that triggers the next sweep.
	sweepThreshold int
}

// Paused reports whether Change refuses everything. Code that writes the host past the journal checks it before each write.
func (j *Journal) Paused() bool { return j.Stopped != nil && j.Stopped() }

// Change sets the files of a unit; files of the unit that are not listed are unchanged. The first change of a file records its value as
// the original, and so does a later one if another process has written the file since. If the kernel rejects a value, the previous writes
// are reverted and the error names the rejected one. A removed cgroup is no error, and some changes of other cgroups may then be skipped.
//
// A file that another unit changed later is not written: the value becomes the one that unit restores.
func (j *Journal) Change(u Unit) error {
	if j.Paused() {
		return fmt.Errorf("%s: %w", u.Subject, ErrPaused)
	}

	j.mu.Lock()
	defer j.mu.Unlock()

	j.sweep()
	groups := j.entries[u.Key].groups()
	for _, c := range u.Changes {
		groups[c.Group] = true
	}

	if err := unscaleGroups(j, groups); err != nil {
		return err
	}

	next, err := j.prepare(u)
	if errors.Is(err, host.ErrGone) {
		return j.dropGone(u.Key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", u.Subject, err)
	}

	// The entry is on disk before the first write, so that the next agent can undo the writes of a killed one.
	old := j.entries[u.Key]

	if err := j.put(next); err != nil {
		return err
	}

	for i, s := range next.steps {
		err := j.files.writer.Write(s.path, s.value)
		if err == nil {
			continue
		}

		if j.files.isGone(s.group, s.file) {
			return j.dropGone(u.Key)
		}

		return errors.Join(fmt.Errorf("%s: writing %q: %w", u.Subject, s.value, err), j.rollBack(u.Key, old, next.steps[:i+1]))
	}

	return nil
}

// rollBack reverts the writes of a unit in reverse order, and its journal entry. If a write is rejected the entry stays.
func (j *Journal) rollBack(key string, old *Entry, written []step) error {
	for _, s := range slices.Backward(written) {
		if now, err := j.files.read(s.group, s.file); err == nil && cgroup.EqualSettings(s.file, now, s.before) {
			continue
		}

		if err := j.files.writer.Write(s.path, s.before); err != nil {
			return fmt.Errorf("reverting: %w", err)
		}
	}

	if old == nil {
		return j.forget(key)
	}

	return j.put(&change{entry: old})
}

// step is a write.
type step struct{ group, file, path, value, before string }

// change is a prepared unit: its entry, the writes, and the changed originals of units above it.
type change struct {
	entry *Entry
	steps []step
	undos []undo
}

// undo is a new original for a file that another unit changed later.
type undo struct {
	record   *FileRecord
	original string
}

func (j *Journal) prepare(u Unit) (*change, error) {
	if u.Key == "" || len(u.Key) > maxText || len(u.Subject) > maxText {
		return nil, fmt.Errorf("%w: %.80q is not a key", ErrJournal, u.Key)
	}

	next := &change{entry: &Entry{Key: u.Key, Subject: u.Subject, Seq: j.last + 1}}
	if old := j.entries[u.Key]; old != nil {
		next.entry.Seq = old.Seq
		next.entry.Files = slices.Clone(old.Files)
	} else if len(j.entries) >= maxEntries {
		return nil, fmt.Errorf("%w: holds %d units, the most there are", ErrJournal, maxEntries)
	}

	for _, c := range u.Changes {
		if err := j.addChange(next, c); err != nil {
			return nil, err
		}
	}

	return next, nil
}

// addChange adds a change to a prepared unit.
func (j *Journal) addChange(next *change, c Change) error {
	path, err := j.files.layout.SettingFile(c.Group, c.File)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}

	value := strings.TrimSpace(c.Value)
	if !isPlainLine(value) {
		return fmt.Errorf("%w: %.80q is not a value", ErrJournal, value)
	}

	now, err := j.files.read(c.Group, c.File)
	if err != nil {
		return err
	}

	// The unit that changed the file last is in force; below it only the value that it restores can change.
	above := j.recordAbove(next.entry, c.Group, c.File)
	if above != nil {
		now = above.Original
	}

	record := next.entry.record(c.Group, c.File)
	if record == nil {
		next.entry.Files = append(next.entry.Files, FileRecord{
			Group:    c.Group,
			File:     c.File,
			Original: now,
			Set:      now,
			Before:   now,
		})

		record = &next.entry.Files[len(next.entry.Files)-1]
	}

	if c.Condition {
		record.Condition = true
		record.Original = now
		record.Set = now
		record.Before = now

		return nil
	}

	if !next.entry.isOwnValue(record, now) {
		record.Original = now
	}

	record.Before = now
	record.Set = value

	switch {
	case above != nil:
		next.undos = append(next.undos, undo{above, value})
	case !cgroup.EqualSettings(c.File, now, value):
		next.steps = append(next.steps, step{c.Group, c.File, path, value, now})
	}

	return nil
}

func (e *Entry) record(group, file string) *FileRecord {
	for i := range e.Files {
		if e.Files[i].matches(group, file) {
			return &e.Files[i]
		}
	}

	return nil
}

// recordAbove returns the record of the file in the unit directly above the entry; nil if there is none.
func (j *Journal) recordAbove(e *Entry, group, file string) *FileRecord {
	var above *FileRecord
	var lowest uint64
	for _, other := range j.entries {
		if other.Seq <= e.Seq || above != nil && other.Seq >= lowest {
			continue
		}

		if record := other.record(group, file); record != nil && !record.Condition {
			above = record
			lowest = other.Seq
		}
	}

	return above
}

// Entry returns the journal's entry of a unit.
func (j *Journal) Entry(key string) (Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()

	e := j.entries[key]
	if e == nil {
		return Entry{}, false
	}

	return Entry{
		Key:     e.Key,
		Subject: e.Subject,
		Seq:     e.Seq,
		Files:   slices.Clone(e.Files),
	}, true
}

// Original returns the value that undoing a unit restores to a file, or its current value if the unit did not change it or another process
// has since. The error is host.ErrGone if the file does not exist.
func (j *Journal) Original(key, group, file string) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	now, err := j.files.read(group, file)
	if err != nil {
		return "", err
	}

	e := j.entries[key]
	if e == nil {
		return now, nil
	}

	if above := j.recordAbove(e, group, file); above != nil {
		now = above.Original
	}

	if record := e.record(group, file); record != nil && e.isOwnValue(record, now) {
		return record.Original, nil
	}

	return now, nil
}

// Current returns the value of a file as its unit sees it: what the unit above it would restore, else what is in force. The error is
// host.ErrGone if the file does not exist.
func (j *Journal) Current(key, group, file string) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	now, err := j.files.read(group, file)
	if err != nil {
		return "", err
	}

	if e := j.entries[key]; e != nil {
		if above := j.recordAbove(e, group, file); above != nil {
			return above.Original, nil
		}
	}

	return now, nil
}

// Sets reports whether the unit set a file to a value.
func (e *Entry) Sets(group, file, value string) bool {
	record := e.record(group, file)
	return record != nil && cgroup.EqualSettings(file, record.Set, value)
}

// ResetScaled writes the limits of a unit's groups and of others again that the kernel has scaled, whichever unit wrote them.
func ResetScaled(j *Journal, key string, others ...string) error {
	j.mu.Lock()
	defer j.mu.Unlock()

	if j.Paused() {
		return nil
	}

	groups := j.entries[key].groups()
	for _, group := range others {
		groups[group] = true
	}

	return unscaleGroups(j, groups)
}

// Entries returns all entries in the order of their first change.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()

	out := make([]Entry, 0, len(j.entries))
	for _, e := range j.entriesBySeq() {
		out = append(out, Entry{
			Key:     e.Key,
			Subject: e.Subject,
			Seq:     e.Seq,
			Files:   slices.Clone(e.Files),
		})
	}

	return out
}

func (j *Journal) entriesBySeq() []*Entry {
	out := make([]*Entry, 0, len(j.entries))
	for _, e := range j.entries {
		out = append(out, e)
	}

	slices.SortFunc(out, func(a, b *Entry) int {
		if a.Seq < b.Seq {
			return -1
		}

		return 1
	})

	return out
}
