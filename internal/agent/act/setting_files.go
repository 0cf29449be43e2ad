// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// settingFiles reads and writes the setting files of cgroups that entries record.
type settingFiles struct {
	layout cgroup.Layout
	writer FileWriter
}

// read returns the content of a file without its newline. The error is host.ErrGone if the file does not exist.
func (s settingFiles) read(group, file string) (string, error) {
	path, err := s.layout.SettingFile(group, file)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrJournal, err)
	}

	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENODEV):
		return "", fmt.Errorf("%s: %w", path, host.ErrGone)
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", file, err)
	}

	text, complete := strings.CutSuffix(string(content), "\n")
	if !complete || !isPlainLine(text) {
		return "", fmt.Errorf("%s: %.80q: %w", path, content, host.ErrTruncated)
	}

	return strings.TrimSpace(text), nil
}

func (s settingFiles) isGone(group, file string) bool {
	_, err := s.read(group, file)
	return errors.Is(err, host.ErrGone)
}

func (s settingFiles) valid(e *Entry) bool {
	if e.Key == "" || len(e.Key) > maxText || len(e.Subject) > maxText || e.Seq > math.MaxInt64 {
		return false
	}

	for i := range e.Files {
		record := &e.Files[i]
		if _, err := s.layout.SettingFile(record.Group, record.File); err != nil {
			return false
		}

		if !isPlainLine(record.Original) || !isPlainLine(record.Set) || !isPlainLine(record.Before) {
			return false
		}
	}

	return true
}

func (s settingFiles) conditionsHold(e *Entry) bool {
	for i := range e.Files {
		record := &e.Files[i]
		if !record.Condition {
			continue
		}

		now, err := s.read(record.Group, record.File)
		if err == nil && !cgroup.EqualSettings(record.File, now, record.Set) {
			return false
		}
	}

	return true
}

// withoutGone returns an entry without files that no longer exist.
func (s settingFiles) withoutGone(e *Entry) *Entry {
	existing := &Entry{Key: e.Key, Subject: e.Subject, Seq: e.Seq}
	for _, record := range e.Files {
		if !s.isGone(record.Group, record.File) {
			existing.Files = append(existing.Files, record)
		}
	}

	return existing
}

// restore writes the original of a file. Kernels before 6.17 reject an empty CPU list for a cgroup with processes; the parent's
// effective list is written instead.
func (s settingFiles) restore(record *FileRecord) error {
	path, err := s.layout.SettingFile(record.Group, record.File)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}

	err = s.writer.Write(path, record.Original)
	if record.Original != "" || !errors.Is(err, syscall.ENOSPC) {
		return err
	}

	effective, readErr := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(path)), record.File+".effective"))
	if readErr != nil {
		return errors.Join(err, readErr)
	}

	return s.writer.Write(path, strings.TrimSpace(string(effective)))
}
