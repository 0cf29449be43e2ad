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
	"crane.io/crane/pkg/qos"
)

const (
	// version is that of the file; one of another version is not read.
	version = 1
	// saveInterval is the time between two writes.
	saveInterval = time.Minute
	// maxAge is the age up to which it is used: what was usual half an hour ago is not what is usual.
	maxAge = 30 * time.Minute
	// maxBytes bounds what is read: a thousand pods have about half of it.
	maxBytes = 8 << 20
)

// Config is what a Keeper works with.
type Config struct {
	// Path is the file.
	Path string
	// AlsoRead is another file that is read and never written, such as that of an agent beside this one; empty for none. The newer one of both
	// counts.
	AlsoRead string
	// BootID tells one start of the host from another. What was usual before it is not what is usual after.
	BootID string
	// Mkdir tells that the file's directory is made where it is not there; else nothing is kept then.
	Mkdir bool
	Log   logr.Logger
}

// Store is the manager that writes the file, beside who has learnt what is in it. A disk that is slow or full keeps nobody else.
type Store struct {
	config Config
	wake   chan struct{}

	mu   sync.Mutex
	next *content // to be written; nil for nothing new
	last time.Time

	lastError string // why the last write failed, told once
	lastEmpty bool   // what was written last
}

// content is what is in the file.
type content struct {
	Boot string         `json:"boot"`
	At   time.Time      `json:"at"`
	Pods []qos.Baseline `json:"pods"`
}

// New returns a keeper.
func New(config Config) *Store {
	return &Store{config: config, wake: make(chan struct{}, 1), lastEmpty: true}
}

// BootID is the kernel's name for this start of the host.
func BootID(root host.Root) (string, error) {
	raw, err := os.ReadFile(root.Path("proc/sys/kernel/random/boot_id"))
	id := strings.TrimSpace(string(raw))
	if err == nil && id == "" {
		err = errors.New("boot_id is empty")
	}
	if err != nil {
		return "", fmt.Errorf("which start of the host this is, is not known: %w", err)
	}
	return id, nil
}

// Load reads what was kept: nothing where there is no file. The error says why files are not used, where none is. The next is due a minute
// later: an agent that ends again and again does not make old things new.
func (k *Store) Load(now time.Time) ([]qos.Baseline, error) {
	k.mu.Lock()
	k.last = now
	k.mu.Unlock()
	var newest content
	var bad error
	for _, path := range []string{k.config.Path, k.config.AlsoRead} {
		if path == "" {
			continue
		}
		c, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = c.validate(k.config.BootID, now)
		}
		switch {
		case err != nil:
			bad = errors.Join(bad, fmt.Errorf("%s: %w", path, err))
		case c.At.After(newest.At):
			newest = c
		}
	}
	if !newest.At.IsZero() {
		bad = nil
	}
	return newest.Pods, bad
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

// validate says why what was kept is of no use.
func (c *content) validate(boot string, now time.Time) error {
	switch age := now.Sub(c.At); {
	case c.Boot != boot:
		return errors.New("the host was started anew since")
	case age > maxAge:
		return fmt.Errorf("it is %s old, more than %s", age.Truncate(time.Second), maxAge)
	case age < -saveInterval:
		return fmt.Errorf("it is of a time to come, in %s", (-age).Truncate(time.Second))
	}
	return nil
}

// Due tells whether it is time to keep something: once a minute.
func (k *Store) Due(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.IsZero() || now.Sub(k.last) >= saveInterval || now.Before(k.last)
}

// Save takes what is to be written next, in the place of what was not written yet. It does not wait for the disk. The list is not changed
// any more.
func (k *Store) Save(list []qos.Baseline, now time.Time) {
	k.mu.Lock()
	k.next, k.last = &content{Boot: k.config.BootID, At: now, Pods: list}, now
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Name implements the agent's Manager.
func (*Store) Name() string { return "baselines" }

// Run writes what it is given until ctx ends, and then what is left.
func (k *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			k.write()
			return nil
		}
		k.write()
	}
}

// write writes what is new. What cannot be written is told once, until it can.
func (k *Store) write() {
	k.mu.Lock()
	c := k.next
	k.next = nil
	k.mu.Unlock()
	if c == nil || len(c.Pods) == 0 && k.lastEmpty {
		return
	}
	err := k.replaceFile(c)
	if errors.Is(err, errNoDirectory) {
		return
	}
	switch {
	case err == nil:
		k.lastError, k.lastEmpty = "", len(c.Pods) == 0
	case k.lastError != err.Error():
		k.lastError = err.Error()
		k.config.Log.Info("Cannot keep what is usual with pods; an agent that starts anew will have to learn it", "error", k.lastError)
	}
}

// errNoDirectory tells that there is no place to keep anything, and that none is to be made.
var errNoDirectory = errors.New("no directory")

func (k *Store) replaceFile(c *content) error {
	dir := filepath.Dir(k.config.Path)
	if k.config.Mkdir {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	} else if _, err := os.Stat(dir); err != nil {
		return errNoDirectory
	}
	sealed, err := durablefile.Seal(version, c)
	if err != nil {
		return fmt.Errorf("%s: %w", k.config.Path, err)
	}
	if len(sealed) > maxBytes {
		return fmt.Errorf("%s: %d bytes are too many", k.config.Path, len(sealed))
	}
	return durablefile.Replace(k.config.Path, sealed)
}
