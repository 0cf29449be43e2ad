// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cleanup removes the directories and cgroups of sessions of real nodes, which unlike namespaces outlive their
// processes. They are recorded before they are created, and removed by a watcher in its own process group as soon as
// the session has ended or, if the watcher was killed as well, by the next session.
package cleanup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"crane.io/crane/internal/testbed/realnode/hostcgroup"
)

const (
	// BaseDir contains a directory for each session, accessible by root only.
	BaseDir = "/run/crane-nodes"
	// Prefix is the name prefix of every cgroup and directory of a session.
	Prefix = "crane-nodes-"

	recordFile = "session.json"
	lockFile   = "lock"
	// bound limits the removal of one item, which takes about a thousandth of it once the processes have exited.
	bound = 20 * time.Second
)

// Record lists the resources to remove.
type Record struct {
	Group hostcgroup.Group `json:"group"`
	// Dirs are the directories of the session's state.
	Dirs []string `json:"dirs"`
}

// Session is an entry in BaseDir locked by this process.
type Session struct {
	dir  string
	lock *os.File
}

// Open creates the entry of a session. The lock is released when this process ends.
func Open(id string) (*Session, error) {
	if err := os.MkdirAll(BaseDir, 0o700); err != nil {
		return nil, fmt.Errorf("opening session: %w", err)
	}

	if err := checkOwner(BaseDir); err != nil {
		return nil, err
	}

	s := &Session{dir: filepath.Join(BaseDir, id)}

	// The entry gets its name when it is locked, so that Sweep never finds it unlocked.
	fresh := s.dir + ".new"
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return nil, fmt.Errorf("opening session: %w", err)
	}

	var err error
	if s.lock, err = os.OpenFile(filepath.Join(fresh, lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("opening session: %w", err), os.RemoveAll(fresh))
	}

	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking session: %w", err), os.RemoveAll(fresh))
	}

	if err := os.Rename(fresh, s.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("opening session: %w", err), os.RemoveAll(fresh))
	}

	return s, nil
}

// checkOwner returns an error if other users can write to a directory, because root removes what it lists.
func checkOwner(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("checking %s: %w", dir, err)
	}

	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory that is accessible by this user only (mode %s)", dir, info.Mode())
	}

	return nil
}

// Dir returns the session's entry.
func (s *Session) Dir() string { return s.dir }

// Save records what is to be removed. It must be called before the resources are created.
func (s *Session) Save(r Record) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing session: %w", err)
	}

	name := filepath.Join(s.dir, recordFile)
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return fmt.Errorf("writing session: %w", err)
	}

	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("writing session: %w", err)
	}

	return nil
}

// Close unlocks the entry, so that it can be removed.
func (s *Session) Close() { s.lock.Close() }

// Watch waits for the end of alive, a pipe whose other end every process of the session holds open, then removes what
// the entry at dir lists.
func Watch(dir string, alive io.Reader) error {
	if filepath.Dir(dir) != BaseDir {
		return fmt.Errorf("%s is not an entry of %s", dir, BaseDir)
	}

	// The end of the pipe arrives as EOF or as an error.
	_, _ = io.Copy(io.Discard, alive)
	return clean(dir)
}

// Sweep removes the resources of ended sessions whose watchers have ended. Running sessions are not affected.
func Sweep() error {
	entries, err := os.ReadDir(BaseDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing sessions: %w", err)
	}

	if err := checkOwner(BaseDir); err != nil {
		return err
	}

	var errs []error
	for _, e := range entries {
		dir := filepath.Join(BaseDir, e.Name())
		if isUnlocked(dir) {
			errs = append(errs, clean(dir))
		}
	}

	return errors.Join(errs...)
}

// isUnlocked reports whether no process holds the session's lock.
func isUnlocked(dir string) bool {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		return false // being created or removed
	}
	defer lock.Close()

	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// clean removes what the entry lists, then the entry.
func clean(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return remove(dir)
	}
	if err != nil {
		return fmt.Errorf("cleaning %s: %w", dir, err)
	}

	var r Record
	if err := json.Unmarshal(content, &r); err != nil {
		return fmt.Errorf("cleaning %s: %w", dir, err)
	}

	// Root removes these paths: only names of sessions are accepted.
	for _, path := range append(append([]string{}, r.Group.Dirs...), r.Dirs...) {
		if !strings.HasPrefix(filepath.Base(path), Prefix) || !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return fmt.Errorf("cleaning %s: %q is not a path of a session", dir, path)
		}
	}

	errs := []error{r.Group.Remove(bound)}
	for _, d := range r.Dirs {
		errs = append(errs, remove(d))
	}

	if err := errors.Join(errs...); err != nil {
		return err
	}

	return remove(dir)
}

// remove removes a directory in which an exiting process may still write.
func remove(dir string) error {
	deadline := time.Now().Add(bound)
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			_ = os.Remove(BaseDir) // succeeds for the last session only
			return nil
		}

		if time.Now().After(deadline) {
			return fmt.Errorf("removing %s: %w", dir, err)
		}

		time.Sleep(10 * time.Millisecond)
	}
}
