// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// ErrJournal tells of a journal that cannot be used: without one nothing is changed.
var ErrJournal = errors.New("journal of changes")

// minSweepFiles is the number of files from which on a journal is swept.
const minSweepFiles = 256

// maxEntries bounds a journal: all containers of a node with the most pods that there are, and some kinds of changes to each.
const maxEntries = 10_000

// Unit is what is changed together and put back together, such as quota and burst of a container.
type Unit struct {
	// Key names the unit: a kind of change and what it is made to, such as cpu/CONTAINER-ID. Of two units with a file in common, that
	// which was changed first lies below the other.
	Key string
	// Subject is whom it is for, such as a pod's name, for people.
	Subject string
	// Changes are in the order in which they are written, which must be one that the kernel takes. A unit that changes cpu.idle has to
	// hold the weight as well, before it: the kernel forgets it.
	Changes []Change
}

// Change is what a file of a group is to hold.
type Change struct {
	// Group is below a hierarchy's root, File one of cgroup's settings.
	Group, File string
	// Value is as the kernel takes it. Nothing is written where the file holds it already.
	Value string
	// Condition tells that the file is not written: the unit counts as somebody else's if it changes.
	Condition bool
}

// Entry is a unit that has been changed, or is about to be.
type Entry struct {
	Key     string `json:"key"`
	Subject string `json:"for"`
	// Seq is higher for units that were changed first later.
	Seq   uint64       `json:"seq"`
	Files []FileRecord `json:"files"`
}

// FileRecord is a file of a unit.
type FileRecord struct {
	Group string `json:"group"`
	File  string `json:"file"`
	// Original is what is to be put back, Set what was written last, or was about to be, and Before what the file held before that: one
	// of the latter two is in force.
	Original  string `json:"original"`
	Set       string `json:"set"`
	Before    string `json:"before"`
	Condition bool   `json:"condition,omitempty"`
}

func (h *FileRecord) matches(group, file string) bool { return h.Group == group && h.File == file }

// isOwnValue tells whether a value is one that this unit has written or was about to replace: an agent that is killed leaves either.
func (e *Entry) isOwnValue(h *FileRecord, now string) bool {
	if cgroup.EqualSettings(h.File, now, h.Set) || cgroup.EqualSettings(h.File, now, h.Before) {
		return true
	}
	// With cpu.idle the kernel sets the weight itself, to the least and back to the usual one (sched_group_set_idle in
	// kernel/sched/fair.c).
	if idle := e.record(h.Group, cgroup.FileIdle); idle == nil || idle.Condition {
		return false
	}
	return h.File == cgroup.FileWeight && (now == "0" || now == "100") || h.File == cgroup.FileSharesV1 && (now == "3" || now == "1024")
}

// Journal is the way to change settings of cgroups: what a file held and is about to hold is on the disk before it is written, so that
// whatever happens to the agent, it is put back by Undo, UndoAll or the UndoAll of the next agent's start. What somebody else has written
// meanwhile stays. It is safe for concurrent use; a call takes as long as the disk needs to sync.
type Journal struct {
	path   string
	layout cgroup.Layout
	files  FileWriter
	// replace is a field for tests that write thousands of journals.
	replace func(path string, content []byte) error

	mu      sync.Mutex
	entries map[string]*Entry
	last    uint64 // the highest Seq
	// sweepThreshold is the number of files held from which on those that are gone are looked for.
	sweepThreshold int
}

// Change brings the files of a unit to new values; files of the unit that are not among the changes stay as they are. The first change
// of a file remembers what it held; so does a later one where somebody else has written to it since. If the kernel refuses a value, what
// was written before it goes back to what it was, and the error says which. A group that is gone is no error: nothing is left to do in it,
// and of the changes of other groups some may not be made.
//
// A file that another unit has changed later is not written: the value is what the other one will put back.
func (j *Journal) Change(u Unit) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sweep()
	next, err := j.prepare(u)
	if errors.Is(err, host.ErrGone) {
		return j.dropGone(u.Key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", u.Subject, err)
	}
	old := j.entries[u.Key]
	if err := j.put(next); err != nil {
		return err
	}
	for i, s := range next.steps {
		err := j.files.Write(s.path, s.value)
		if err == nil {
			continue
		}
		if j.isGone(s.group, s.file) {
			return j.dropGone(u.Key)
		}
		return errors.Join(fmt.Errorf("%s: write %q: %w", u.Subject, s.value, err), j.rollBack(u.Key, old, next.steps[:i+1]))
	}
	return nil
}

// rollBack takes back what was written of a unit, in reverse order, and what the journal says of it. Where a write is refused the journal
// keeps it.
func (j *Journal) rollBack(key string, old *Entry, written []step) error {
	for _, s := range slices.Backward(written) {
		if now, err := j.read(s.group, s.file); err == nil && cgroup.EqualSettings(s.file, now, s.before) {
			continue
		}
		if err := j.files.Write(s.path, s.before); err != nil {
			return fmt.Errorf("take back: %w", err)
		}
	}
	if old == nil {
		return j.forget(key)
	}
	return j.put(&change{entry: old})
}

// step is a write.
type step struct{ group, file, path, value, before string }

// change is what comes of a unit: its entry, the writes, and what units above it are to put back.
type change struct {
	entry *Entry
	steps []step
	undos []undo
}

// undo is a new original of a file that another unit has changed later.
type undo struct {
	record   *FileRecord
	original string
}

func (j *Journal) prepare(u Unit) (*change, error) {
	if u.Key == "" || len(u.Key) > maxText || len(u.Subject) > maxText {
		return nil, fmt.Errorf("%w: %.80q is no key", ErrJournal, u.Key)
	}
	next := &change{entry: &Entry{Key: u.Key, Subject: u.Subject, Seq: j.last + 1}}
	if old := j.entries[u.Key]; old != nil {
		next.entry.Seq, next.entry.Files = old.Seq, slices.Clone(old.Files)
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

// addChange takes a change into what is to be done.
func (j *Journal) addChange(next *change, c Change) error {
	path, err := j.layout.SettingFile(c.Group, c.File)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	value := strings.TrimSpace(c.Value)
	if !isPlainLine(value) {
		return fmt.Errorf("%w: %.80q is no value", ErrJournal, value)
	}
	now, err := j.read(c.Group, c.File)
	if err != nil {
		return err
	}
	over := j.recordAbove(next.entry, c.Group, c.File)
	if over != nil {
		now = over.Original
	}
	h := next.entry.record(c.Group, c.File)
	if h == nil {
		next.entry.Files = append(next.entry.Files, FileRecord{Group: c.Group, File: c.File, Original: now, Set: now, Before: now})
		h = &next.entry.Files[len(next.entry.Files)-1]
	}
	if c.Condition {
		h.Condition, h.Original, h.Set, h.Before = true, now, now, now
		return nil
	}
	if !next.entry.isOwnValue(h, now) {
		h.Original = now
	}
	h.Before, h.Set = now, value
	switch {
	case over != nil:
		next.undos = append(next.undos, undo{over, value})
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

// recordAbove is the file as the unit holds it that lies directly on an entry, nil where none does.
func (j *Journal) recordAbove(e *Entry, group, file string) *FileRecord {
	var over *FileRecord
	var lowest uint64
	for _, other := range j.entries {
		if other.Seq <= e.Seq || over != nil && other.Seq >= lowest {
			continue
		}
		if h := other.record(group, file); h != nil && !h.Condition {
			over, lowest = h, other.Seq
		}
	}
	return over
}

// read is what a file holds, without its newline. The error is host.ErrGone where the file is not there.
func (j *Journal) read(group, file string) (string, error) {
	path, err := j.layout.SettingFile(group, file)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrJournal, err)
	}
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENODEV):
		return "", fmt.Errorf("%s: %w", path, host.ErrGone)
	case err != nil:
		return "", fmt.Errorf("read: %w", err)
	}
	text, whole := strings.CutSuffix(string(content), "\n")
	if !whole || !isPlainLine(text) {
		return "", fmt.Errorf("%s: %.80q: %w", path, content, host.ErrTruncated)
	}
	return strings.TrimSpace(text), nil
}

func (j *Journal) isGone(group, file string) bool {
	_, err := j.read(group, file)
	return errors.Is(err, host.ErrGone)
}

// Entry is what the journal holds of a unit.
func (j *Journal) Entry(key string) (Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entries[key]
	if e == nil {
		return Entry{}, false
	}
	return Entry{Key: e.Key, Subject: e.Subject, Seq: e.Seq, Files: slices.Clone(e.Files)}, true
}

// Original is what will be put back to a file of a unit, or what it holds now where the unit has not changed it or somebody else has
// since. The error is host.ErrGone where the file is not there.
func (j *Journal) Original(key, group, file string) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, err := j.read(group, file)
	if err != nil {
		return "", err
	}
	if e := j.entries[key]; e != nil {
		if h := e.record(group, file); h != nil && (e.isOwnValue(h, now) || j.recordAbove(e, group, file) != nil) {
			return h.Original, nil
		}
	}
	return now, nil
}

// Entries are all units, in the order in which they were changed first.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]Entry, 0, len(j.entries))
	for _, e := range j.entriesBySeq() {
		out = append(out, Entry{Key: e.Key, Subject: e.Subject, Seq: e.Seq, Files: slices.Clone(e.Files)})
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
