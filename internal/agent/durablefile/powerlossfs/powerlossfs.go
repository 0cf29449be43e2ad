// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package powerlossfs is a file system for tests that loses what was not synced: of a file's content what was written since, of a directory
// what was made, renamed or removed in it since. Of all that any part may be lost and any part kept, since disks and file systems write
// when and in what order they like; Survivors says what may be found in a file then.
package powerlossfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"crane.io/crane/internal/agent/durablefile"
)

// Disk is such a file system, of files in one directory. It is not safe for concurrent use.
type Disk struct {
	// Step, if there is one, is called after each thing that is done, with what would be lost if it were the last.
	Step func()

	entries map[string]*file
	// previous are what a name stood for since its directory was synced, nil for nothing.
	previous map[string][]*file
	synced   map[string]*file
}

var _ durablefile.Disk = (*Disk)(nil)

// file is a file by any name.
type file struct {
	disk *Disk
	// content is what is read, kept what is on the disk.
	content, durable []byte
	// dirty tells that something was written since the last sync.
	dirty bool
}

// New returns an empty disk.
func New() *Disk {
	return &Disk{entries: map[string]*file{}, previous: map[string][]*file{}, synced: map[string]*file{}}
}

func (d *Disk) stepDone() {
	if d.Step != nil {
		d.Step()
	}
}

// setEntry makes a name stand for another file.
func (d *Disk) setEntry(name string, f *file) {
	d.previous[name] = append(d.previous[name], f)
	if f == nil {
		delete(d.entries, name)
	} else {
		d.entries[name] = f
	}
}

// Create implements durable.Disk.
func (d *Disk) Create(path string) (durablefile.File, error) {
	f := d.entries[path]
	if f == nil {
		f = &file{disk: d}
		d.setEntry(path, f)
	}
	f.content, f.dirty = nil, f.dirty || len(f.content) > 0
	d.stepDone()
	return f, nil
}

// Rename implements durable.Disk.
func (d *Disk) Rename(from, to string) error {
	f := d.entries[from]
	if f == nil {
		return fmt.Errorf("rename %s: %w", from, fs.ErrNotExist)
	}
	d.setEntry(to, f)
	d.setEntry(from, nil)
	d.stepDone()
	return nil
}

// Remove implements durable.Disk.
func (d *Disk) Remove(path string) error {
	if d.entries[path] == nil {
		return fmt.Errorf("remove %s: %w", path, fs.ErrNotExist)
	}
	d.setEntry(path, nil)
	d.stepDone()
	return nil
}

// SyncDir implements durable.Disk.
func (d *Disk) SyncDir(string) error {
	clear(d.previous)
	clear(d.synced)
	maps.Copy(d.synced, d.entries)
	d.stepDone()
	return nil
}

// Write implements durable.File.
func (f *file) Write(content []byte) (int, error) {
	f.content, f.dirty = append(slices.Clone(f.content), content...), true
	f.disk.stepDone()
	return len(content), nil
}

// Sync implements durable.File.
func (f *file) Sync() error {
	f.durable, f.dirty = f.content, false
	f.disk.stepDone()
	return nil
}

// Close implements durable.File.
func (f *file) Close() error { return nil }

// PossibleContents are the contents of a file that may be found after the power was lost now, each once; nil is none at all.
func (d *Disk) PossibleContents(path string) (all [][]byte) {
	add := func(content []byte) {
		if !slices.ContainsFunc(all, func(c []byte) bool { return (c == nil) == (content == nil) && bytes.Equal(c, content) }) {
			all = append(all, content)
		}
	}
	for _, f := range append([]*file{d.synced[path]}, d.previous[path]...) {
		if f == nil {
			add(nil)
			continue
		}
		if !f.dirty {
			add(append([]byte{}, f.content...))
			continue
		}
		// What was on the disk, what was written, the first part of it, and a file that is as long and was never filled.
		for _, content := range [][]byte{f.durable, f.content, f.content[:len(f.content)/2], nil, make([]byte, len(f.content))} {
			add(append([]byte{}, content...))
		}
	}
	return all
}

// LosePower loses the power; of what may be found of a file it is this that is.
func (d *Disk) LosePower(path string, found []byte) {
	clear(d.entries)
	clear(d.previous)
	clear(d.synced)
	if found != nil {
		f := &file{disk: d, content: found, durable: found}
		d.entries[path], d.synced[path] = f, f
	}
}
