// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/pkg/qos"
)

const (
	// version is the version of the file; others are not read.
	version = 1
	// saveInterval is the interval of writes.
	saveInterval = time.Minute
	// maxAge is the largest age of a usable file: usual behavior changes within half an hour.
	maxAge = 30 * time.Minute
	// maxBytes bounds the file; a thousand pods need about half of it.
	maxBytes = 8 << 20
)

// Config configures a Store.
type Config struct {
	// Path is the file.
	Path string
	// AlsoRead is another file that is only read, as that of an agent beside this one; empty for none. The newer one counts.
	AlsoRead string
	// BootID identifies the boot of the host; baselines of another boot are not used.
	BootID string
	// Mkdir creates the file's directory; otherwise nothing is stored if it is missing.
	Mkdir bool
	Log   logr.Logger
}

// Store is the manager that writes the file, so that a slow or full disk stalls no other part.
type Store struct {
	config Config
	wake   chan struct{}

	mu   sync.Mutex
	next *content // to be written; nil for none
	last time.Time

	lastError string // last logged write error
	lastEmpty bool   // the last written list was empty
}

// content is the file's content.
type content struct {
	Boot string         `json:"boot"`
	At   time.Time      `json:"at"`
	Pods []qos.Baseline `json:"pods"`
}

// New returns a store.
func New(config Config) *Store {
	return &Store{config: config, wake: make(chan struct{}, 1), lastEmpty: true}
}

// BootID returns the kernel's ID of the current boot.
func BootID(root host.Root) (string, error) {
	raw, err := os.ReadFile(root.Path("proc/sys/kernel/random/boot_id"))
	id := strings.TrimSpace(string(raw))
	if err == nil && id == "" {
		err = errors.New("boot_id is empty")
	}

	if err != nil {
		return "", fmt.Errorf("identifying the boot of the host: %w", err)
	}

	return id, nil
}

// Load returns the stored baselines, none if there is no file. The error explains why no file is usable. The next save is due a minute
// later, so that repeated restarts do not renew old data.
func (s *Store) Load(now time.Time) ([]qos.Baseline, error) {
	s.mu.Lock()
	s.last = now
	s.mu.Unlock()

	var newest content
	var loadErr error
	for _, path := range []string{s.config.Path, s.config.AlsoRead} {
		if path == "" {
			continue
		}

		c, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err == nil {
			err = c.validate(s.config.BootID, now)
		}

		switch {
		case err != nil:
			loadErr = errors.Join(loadErr, fmt.Errorf("%s: %w", path, err))
		case c.At.After(newest.At):
			newest = c
		}
	}

	// One usable file is enough.
	if !newest.At.IsZero() {
		loadErr = nil
	}

	return newest.Pods, loadErr
}

func readFile(path string) (c content, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()

	raw, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(raw) > maxBytes {
		err = fmt.Errorf("longer than %d bytes", maxBytes)
	}
	if err == nil {
		err = durablefile.Open(version, raw, &c)
	}

	return c, err
}

// validate returns why the content is unusable.
func (c *content) validate(boot string, now time.Time) error {
	switch age := now.Sub(c.At); {
	case c.Boot != boot:
		return errors.New("the host has rebooted since")
	case age > maxAge:
		return fmt.Errorf("it is %s old, more than %s", age.Truncate(time.Second), maxAge)
	case age < -saveInterval:
		return fmt.Errorf("it was written %s in the future", (-age).Truncate(time.Second))
	}

	return nil
}

// Due reports whether a minute has passed since the last save.
func (s *Store) Due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.last.IsZero() || now.Sub(s.last) >= saveInterval || now.Before(s.last)
}

// Save replaces the list to be written next, without waiting for the disk. The list must not be changed afterward.
func (s *Store) Save(list []qos.Baseline, now time.Time) {
	s.mu.Lock()
	s.next = &content{Boot: s.config.BootID, At: now, Pods: list}
	s.last = now
	s.mu.Unlock()

	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Name implements the agent's Manager.
func (*Store) Name() string { return "baselines" }

// Run writes saved lists until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.write()
			return nil
		}

		s.write()
	}
}

// write writes a new list and logs the first of repeated errors.
func (s *Store) write() {
	s.mu.Lock()
	c := s.next
	s.next = nil
	s.mu.Unlock()

	if c == nil || len(c.Pods) == 0 && s.lastEmpty {
		return
	}

	err := s.replaceFile(c)
	if errors.Is(err, errNoDirectory) {
		return
	}

	switch {
	case err == nil:
		s.lastError = ""
		s.lastEmpty = len(c.Pods) == 0
	case s.lastError != err.Error():
		s.lastError = err.Error()
		s.config.Log.Error(err, "storing the baselines of pods")
	}
}

// errNoDirectory reports a missing directory that may not be created.
var errNoDirectory = errors.New("no directory")

func (s *Store) replaceFile(c *content) error {
	dir := filepath.Dir(s.config.Path)
	if s.config.Mkdir {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	} else if _, err := os.Stat(dir); err != nil {
		return errNoDirectory
	}

	sealed, err := durablefile.Seal(version, c)
	if err != nil {
		return fmt.Errorf("%s: %w", s.config.Path, err)
	}

	if len(sealed) > maxBytes {
		return fmt.Errorf("%s: %d bytes are too many", s.config.Path, len(sealed))
	}

	return atomicfile.Replace(s.config.Path, sealed)
}
