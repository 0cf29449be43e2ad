// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package durablefile gives files of the agent a version and a checksum, and locks the directory that holds them.
package durablefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"crane.io/crane/pkg/checksum"
)

// ErrLocked reports that another process has locked the directory.
var ErrLocked = errors.New("is in use by another process")

// Lock locks a directory for this process until the returned file is closed or the process ends. The error is ErrLocked if another
// process holds the lock.
func Lock(dir string) (*os.File, error) {
	f, err := os.Open(dir) // the directory itself: works on a full and on a read-only disk
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

// Envelope is the file format: a version and the CRC-32C checksum of the content as written.
type Envelope struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"`
	Content  json.RawMessage `json:"content"`
}

// Seal encodes a value in an Envelope.
func Seal(version int, value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}

	out, err := json.Marshal(Envelope{Version: version, Checksum: checksum.Castagnoli(raw), Content: raw})
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}

	return out, nil
}

// ErrNewer reports a file that a newer version of the agent wrote.
var ErrNewer = errors.New("written by a newer version")

// Open decodes the value of an Envelope of the given version. It returns ErrNewer for a later version, and an error for an earlier one, a wrong checksum or invalid JSON.
func Open(version int, sealed []byte, value any) error {
	var e Envelope
	if err := json.Unmarshal(sealed, &e); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}

	if e.Version > version {
		return fmt.Errorf("%w: has version %d, and this agent reads up to %d", ErrNewer, e.Version, version)
	}

	if e.Version != version {
		return fmt.Errorf("has version %d, want %d", e.Version, version)
	}

	if checksum.Castagnoli(e.Content) != e.Checksum {
		return errors.New("checksum does not match the content")
	}

	if err := json.Unmarshal(e.Content, value); err != nil {
		return fmt.Errorf("content: %w", err)
	}

	return nil
}
