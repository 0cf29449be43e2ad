// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/pkg/checksum"
)

// journalVersion is the version of the file format; versionOne, with CPU limits of containers only, can still be undone.
const (
	journalVersion = 2
	versionOne     = 1
)

const (
	// maxText bounds keys and names in bytes, maxValue the content of a file: the CPU list of the largest host.
	maxText  = 512
	maxValue = 32 << 10
)

// journalFile is the file; the checksum is the CRC-32C of the encoded entries.
type journalFile struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"`
	Entries  json.RawMessage `json:"entries"`
}

// OpenJournal reads a journal; a missing one is empty. A damaged one is renamed to path.bad and reported by an error beside an empty,
// usable journal: its changes cannot be undone any more. One of a newer version stays as it is, and the error has no journal beside it: only
// the newer agent can undo what it holds.
func OpenJournal(path string, layout cgroup.Layout, files FileWriter) (*Journal, error) {
	j := &Journal{
		path:    path,
		files:   settingFiles{layout, files},
		replace: atomicfile.Replace,
		entries: map[string]*Entry{},
	}

	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJournal, err)
	}

	err = j.decode(content)
	if errors.Is(err, ErrNewerJournal) {
		return nil, fmt.Errorf("%w: %s: %w: run the newer agent again, which undoes its changes when it stops", ErrJournal, path, err)
	}

	// Kept aside for a person: without it the original values are lost.
	if err != nil {
		j.entries = map[string]*Entry{}
		j.last = 0
		return j, errors.Join(fmt.Errorf("%w: %s is damaged, and moved to %s.bad: %w", ErrJournal, path, path, err), os.Rename(path, path+".bad"))
	}

	return j, nil
}

func (j *Journal) decode(content []byte) error {
	var file journalFile
	if err := json.Unmarshal(content, &file); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}

	if checksum.Castagnoli(file.Entries) != file.Checksum {
		return errors.New("has another checksum than its entries")
	}

	var list []*Entry
	var err error
	switch file.Version {
	case journalVersion:
		if err := json.Unmarshal(file.Entries, &list); err != nil {
			return fmt.Errorf("entries: %w", err)
		}
	case versionOne:
		list, err = decodeV1(file.Entries, j.files.layout.Version)

	default:
		if file.Version > journalVersion {
			err = fmt.Errorf("%w: has version %d, and this agent reads up to %d", ErrNewerJournal, file.Version, journalVersion)
			break
		}

		err = fmt.Errorf("has version %d, want %d", file.Version, journalVersion)
	}

	if err != nil {
		return err
	}

	for _, e := range list {
		if e == nil || j.entries[e.Key] != nil || len(j.entries) >= maxEntries || !j.files.valid(e) {
			return errors.New("an entry is null")
		}

		j.entries[e.Key] = e
		j.last = max(j.last, e.Seq)
	}

	return nil
}

// isPlainLine reports whether a text can be the single line of a setting.
func isPlainLine(text string) bool {
	return len(text) <= maxValue && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// entryV1 is an entry of the first version: a container's limit in microseconds. A quota below 0 means none.
type entryV1 struct {
	ContainerID string  `json:"containerID"`
	Group       string  `json:"group"`
	Pod         string  `json:"pod"`
	Original    limitV1 `json:"original"`
	Set         limitV1 `json:"set"`
	Before      limitV1 `json:"before"`
}

type limitV1 struct {
	Quota  int64 `json:"quota"`
	Period int64 `json:"period"`
	Burst  int64 `json:"burst"`
}

func (l limitV1) valid() bool { return l.Period > 0 && l.Burst >= 0 && l.Quota != 0 }

func decodeV1(raw []byte, version cgroup.Version) ([]*Entry, error) {
	var entries map[string]entryV1
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, fmt.Errorf("entries: %w", err)
	}

	out := make([]*Entry, 0, len(entries))
	for id, old := range entries {
		if id != old.ContainerID || !old.Original.valid() || !old.Set.valid() || !old.Before.valid() {
			return nil, fmt.Errorf("entry %.80q is null", id)
		}

		e := &Entry{Key: cpuKey(id), Subject: old.Pod, Seq: uint64(len(out) + 1)}
		addFile := func(file string, value func(limitV1) string) *FileRecord {
			e.Files = append(e.Files, FileRecord{
				Group:    old.Group,
				File:     file,
				Original: value(old.Original),
				Set:      value(old.Set),
				Before:   value(old.Before),
			})

			return &e.Files[len(e.Files)-1]
		}

		// On v1 the quota applies to the period of another file, which is only watched.
		names := cpuLimitFiles(version)

		if version != cgroup.V2 {
			addFile(cgroup.FilePeriodV1, func(l limitV1) string { return strconv.FormatInt(l.Period, 10) }).Condition = true
		}

		addFile(names.burst, func(l limitV1) string { return strconv.FormatInt(l.Burst, 10) })
		addFile(names.quota, func(l limitV1) string {
			return names.format(cgroup.Bandwidth{Quota: time.Duration(l.Quota) * time.Microsecond, Period: time.Duration(l.Period) * time.Microsecond})
		})
		out = append(out, e)
	}

	return out, nil
}

// put writes an entry to disk.
func (j *Journal) put(c *change) error {
	old := j.entries[c.entry.Key]
	before := make([]string, len(c.undos))
	for i, u := range c.undos {
		before[i] = u.record.Original
		u.record.Original = u.original
	}

	j.entries[c.entry.Key] = c.entry
	err := j.save()
	if err == nil {
		j.last = max(j.last, c.entry.Seq)
		return nil
	}

	// Nothing was saved, so memory has to match the previous file.
	for i, u := range c.undos {
		u.record.Original = before[i]
	}

	if old != nil {
		j.entries[c.entry.Key] = old
	} else {
		delete(j.entries, c.entry.Key)
	}

	return err
}

// save replaces the file atomically.
func (j *Journal) save() error {
	raw, err := json.Marshal(j.entriesBySeq())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}

	content, err := json.Marshal(journalFile{Version: journalVersion, Checksum: checksum.Castagnoli(raw), Entries: raw})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}

	if err := j.replace(j.path, content); err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}

	return nil
}

// FileWriter writes kernel files.
type FileWriter interface {
	// Write writes a value to an existing file; it never creates one.
	Write(file, value string) error
}

// KernelFileWriter writes real kernel files.
type KernelFileWriter struct{}

// Write implements FileWriter. The file is opened without O_CREATE, which would create a plain file outside a cgroup. The kernel ignores
// O_TRUNC; the plain files of a simulated host need it.
func (KernelFileWriter) Write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}

	return errors.Join(writeOnce(f, value+"\n"), f.Close())
}

// writeOnce writes with a single system call and returns its error. The Go runtime treats cgroup files as pollable and would wait forever
// when the kernel returns EAGAIN, as memory.reclaim does. Zero bytes are not written at all, so an empty CPU list is written as an empty
// line.
func writeOnce(f *os.File, text string) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}

	var writeErr error
	err = conn.Write(func(fd uintptr) (done bool) {
		for writeErr = syscall.EINTR; errors.Is(writeErr, syscall.EINTR); {
			_, writeErr = syscall.Write(int(fd), []byte(text))
		}

		return true
	})

	if writeErr != nil {
		return &os.PathError{Op: "write", Path: f.Name(), Err: writeErr}
	}

	return err
}
