// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// Entry is a change of a container's limit that has been or is about to be made.
type Entry struct {
	// ContainerID is its key.
	ContainerID string `json:"containerID"`
	// Group is the container's cgroup below a hierarchy's root.
	Group string `json:"group"`
	// Pod is for people.
	Pod string `json:"pod"`
	// Original is what is to be put back, Set what has been written last, or was about to be: one of them is in force.
	Original limit `json:"original"`
	Set      limit `json:"set"`
	// Before is what was in force before Set.
	Before limit `json:"before"`
}

// limit is what the kernel's files say, in microseconds. A Quota below 0 is none.
type limit struct {
	Quota  int64 `json:"quota"`
	Period int64 `json:"period"`
	Burst  int64 `json:"burst"`
}

// ErrJournal tells of a journal that cannot be used: without one nothing is changed.
var ErrJournal = errors.New("journal of changes")

// journalVersion is that of the file's form.
const journalVersion = 1

// journalFile is the file; the checksum is CRC-32C of the entries as they are written.
type journalFile struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"`
	Entries  json.RawMessage `json:"entries"`
}

// Journal keeps what was changed in a file. It is not safe for concurrent use.
type Journal struct {
	path    string
	entries map[string]Entry
}

// OpenJournal reads a journal. One that is not there is empty. One that is damaged is moved aside, to path.bad, and told of by an error
// beside the empty journal, which can be used: what it held cannot be undone any more.
func OpenJournal(path string) (*Journal, error) {
	j := &Journal{path: path, entries: map[string]Entry{}}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	if err := j.decode(content); err != nil {
		j.entries = map[string]Entry{}
		return j, errors.Join(fmt.Errorf("%w: %s is damaged, and moved to %s.bad: %w", ErrJournal, path, path, err), os.Rename(path, path+".bad"))
	}
	return j, nil
}

func checksum(raw []byte) uint32 { return crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli)) }

func (j *Journal) decode(content []byte) error {
	var file journalFile
	if err := json.Unmarshal(content, &file); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	if file.Version != journalVersion {
		return fmt.Errorf("has version %d, want %d", file.Version, journalVersion)
	}
	if checksum(file.Entries) != file.Checksum {
		return errors.New("has another checksum than its entries")
	}
	if err := json.Unmarshal(file.Entries, &j.entries); err != nil {
		return fmt.Errorf("entries: %w", err)
	}
	for id, e := range j.entries {
		if id != e.ContainerID || !filepath.IsLocal(e.Group) || !e.Original.valid() || !e.Set.valid() || !e.Before.valid() {
			return fmt.Errorf("entry %.80q is none", id)
		}
	}
	return nil
}

func (l limit) valid() bool { return l.Period > 0 && l.Burst >= 0 && l.Quota != 0 }

// Entries are all of them, by the container's id.
func (j *Journal) Entries() map[string]Entry { return maps.Clone(j.entries) }

// put adds or changes an entry. It returns when it is on the disk.
func (j *Journal) put(e Entry) error {
	old, had := j.entries[e.ContainerID]
	j.entries[e.ContainerID] = e
	err := j.save()
	switch {
	case err == nil:
	case had:
		j.entries[e.ContainerID] = old
	default:
		delete(j.entries, e.ContainerID)
	}
	return err
}

// remove forgets an entry. Should that fail, it is undone once more than needed, which changes nothing.
func (j *Journal) remove(id string) error {
	if _, ok := j.entries[id]; !ok {
		return nil
	}
	delete(j.entries, id)
	return j.save()
}

// save replaces the file in one step: a write that is torn leaves the old one.
func (j *Journal) save() error {
	raw, err := json.Marshal(j.entries)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	content, err := json.Marshal(journalFile{Version: journalVersion, Checksum: checksum(raw), Entries: raw})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	if err := replace(j.path, content); err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	return nil
}

func replace(path string, content []byte) (err error) {
	temporary := path + ".tmp"
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // The error names the file.
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	// The directory's entry has to be on the disk as well.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err //nolint:wrapcheck // The error names the file.
	}
	return errors.Join(dir.Sync(), dir.Close())
}
