// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package powerlossfs is a file system for tests that loses unsynced data at a power loss: written content, and names created, renamed or
// removed. Any part of it may be lost or kept, since disks write in any order; PossibleContents returns what a file may contain
// afterward.
package powerlossfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"crane.io/crane/internal/component/atomicfile"
)

// Disk is a file system with one directory. It is not safe for concurrent use.
type Disk struct {
	// Step is called after each operation, at a point where the power may fail; nil for none.
	Step func()

	entries map[string]*file
	// previous holds what each name referred to since its directory was last synced, nil for nothing.
	previous map[string][]*file
	synced   map[string]*file
}

var _ atomicfile.Disk = (*Disk)(nil)

type file struct {
	disk *Disk
	// content is the content as read, durable the content on the disk.
	content, durable []byte
	// dirty means written since the last sync.
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

// setEntry makes a name refer to a file, or to nothing.
func (d *Disk) setEntry(name string, f *file) {
	d.previous[name] = append(d.previous[name], f)
	if f == nil {
		delete(d.entries, name)
	} else {
		d.entries[name] = f
	}
}

// Create implements atomicfile.Disk.
func (d *Disk) Create(path string) (atomicfile.File, error) {
	f := d.entries[path]
	if f == nil {
		f = &file{disk: d}
		d.setEntry(path, f)
	}

	f.content, f.dirty = nil, f.dirty || len(f.content) > 0
	d.stepDone()
	return f, nil
}

// Rename implements atomicfile.Disk.
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

// Remove implements atomicfile.Disk.
func (d *Disk) Remove(path string) error {
	if d.entries[path] == nil {
		return fmt.Errorf("remove %s: %w", path, fs.ErrNotExist)
	}

	d.setEntry(path, nil)
	d.stepDone()
	return nil
}

// SyncDir implements atomicfile.Disk.
func (d *Disk) SyncDir(string) error {
	clear(d.previous)
	clear(d.synced)
	maps.Copy(d.synced, d.entries)
	d.stepDone()

	return nil
}

// Write implements atomicfile.File.
func (f *file) Write(content []byte) (int, error) {
	f.content = append(slices.Clone(f.content), content...)
	f.dirty = true
	f.disk.stepDone()

	return len(content), nil
}

// Sync implements atomicfile.File.
func (f *file) Sync() error {
	f.durable = f.content
	f.dirty = false
	f.disk.stepDone()

	return nil
}

// Close implements atomicfile.File.
func (f *file) Close() error { return nil }

// PossibleContents returns the distinct contents that a file may have if the power fails now; nil means that the file does not exist.
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

		// The durable content, the written content, its first half, and a file of the same length that was never filled.
		for _, content := range [][]byte{f.durable, f.content, f.content[:len(f.content)/2], nil, make([]byte, len(f.content))} {
			add(append([]byte{}, content...))
		}
	}

	return all
}

// LosePower loses all unsynced data; found is the content that the file has afterward, nil for none.
func (d *Disk) LosePower(path string, found []byte) {
	clear(d.entries)
	clear(d.previous)
	clear(d.synced)

	if found != nil {
		f := &file{disk: d, content: found, durable: found}
		d.entries[path] = f
		d.synced[path] = f
	}
}
