// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package durablefile keeps files that outlast a process that is killed and a disk that is full: a file is replaced in one step or not at all.
// It knows nothing of what is in them.
package durablefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLocked tells that another process has a directory.
var ErrLocked = errors.New("is in use by another process")

// Lock takes a directory for this process, until the file that it returns is closed or the process ends, however it does. The error is
// ErrLocked where another process has it.
func Lock(dir string) (*os.File, error) {
	f, err := os.Open(dir) // itself, which a full disk or one that is read-only does not keep it from
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), f.Close())
	}
	return f, nil
}

// Replace writes a file in one step: a write that is torn leaves the old one. It returns when the file is on the disk.
func Replace(path string, content []byte) error { return ReplaceOn(osDisk{}, path, content) }

// Disk is what Replace needs of a file system; its files are lost with the power until they are synced, and so are their names until their
// directory is.
type Disk interface {
	// Create makes a file, empty also where there is one.
	Create(path string) (File, error)
	// Rename puts a file in the place of another, or of none.
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir brings the names in a directory to the disk.
	SyncDir(path string) error
}

// File is an open file of a Disk.
type File interface {
	io.WriteCloser
	// Sync brings the content to the disk.
	Sync() error
}

// ReplaceOn is Replace on a file system.
func ReplaceOn(disk Disk, path string, content []byte) error {
	temporary := path + ".tmp"
	f, err := disk.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = disk.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, disk.Remove(temporary))
	}
	// The directory's entry has to be on the disk as well.
	return disk.SyncDir(filepath.Dir(path))
}

// osDisk is the one that there is.
type osDisk struct{}

func (osDisk) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (osDisk) SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Envelope is the form of a file: the checksum is CRC-32C of the content as it is written.
type Envelope struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"`
	Content  json.RawMessage `json:"content"`
}

// Seal puts a value into an envelope.
func Seal(version int, value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	out, err := json.Marshal(Envelope{Version: version, Checksum: checksum(raw), Content: raw})
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return out, nil
}

// Open reads a value from an envelope of that version. The error says what is wrong with it.
func Open(version int, sealed []byte, value any) error {
	var e Envelope
	if err := json.Unmarshal(sealed, &e); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	if e.Version != version {
		return fmt.Errorf("has version %d, want %d", e.Version, version)
	}
	if checksum(e.Content) != e.Checksum {
		return errors.New("has another checksum than its content")
	}
	if err := json.Unmarshal(e.Content, value); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	return nil
}

func checksum(raw []byte) uint32 { return crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli)) }
