// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files at once: a reader, and a process that starts after a kill or with a full disk, finds the old content or
// the new one, never a part.
package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// suffix ends the names of temporary files.
const suffix = ".tmp"

// Write replaces a file that several processes may write and read at the same time. The file has mode 0600. After a power loss it may be
// empty; WriteDurably prevents that.
func Write(path string, content []byte) error {
	return writeUnique(path, content, func(*os.File) error { return nil })
}

// WriteDurably is Write that returns after the file is on the disk: it survives a power loss.
func WriteDurably(path string, content []byte) error {
	if err := writeUnique(path, content, (*os.File).Sync); err != nil {
		return err
	}

	return osDisk{}.SyncDir(filepath.Dir(path))
}

// Rename renames a file and returns after the new name is on the disk.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}

	return osDisk{}.SyncDir(filepath.Dir(to))
}

// IsTemporary reports whether a file is one that a killed process left while it replaced another.
func IsTemporary(name string) bool { return strings.HasSuffix(name, suffix) }

func writeUnique(path string, content []byte, sync func(*os.File) error) error {
	// CreateTemp follows no link and shares its file with no other process.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+suffix)
	if err != nil {
		return err
	}

	_, err = f.Write(content)
	if err == nil {
		err = sync(f)
	}

	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}

	return nil
}

// Replace replaces a file of which this process is the only writer, and returns after it is on the disk: it survives a power loss. The file
// has mode 0600. A killed process leaves at most one temporary file, which the next call overwrites.
func Replace(path string, content []byte) error { return ReplaceOn(osDisk{}, path, content) }

// Disk is the part of a file system that Replace needs. A power loss may drop files that are not synced and names whose directory is not
// synced.
type Disk interface {
	// Create creates a file, or truncates an existing one.
	Create(path string) (File, error)
	// Rename renames a file and replaces an existing one.
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir syncs the names of a directory to the disk.
	SyncDir(path string) error
}

// File is an open file of a Disk.
type File interface {
	io.WriteCloser
	// Sync syncs the content to the disk.
	Sync() error
}

// ReplaceOn is Replace on any Disk.
func ReplaceOn(disk Disk, path string, content []byte) error {
	temporary := path + suffix
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

	return disk.SyncDir(filepath.Dir(path))
}

// osDisk is the file system of the operating system.
type osDisk struct{}

func (osDisk) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (osDisk) SyncDir(path string) error {
	// Windows syncs no directories.
	if runtime.GOOS == "windows" {
		return nil
	}

	dir, err := os.Open(path)
	if err != nil {
		return err
	}

	return errors.Join(dir.Sync(), dir.Close())
}
