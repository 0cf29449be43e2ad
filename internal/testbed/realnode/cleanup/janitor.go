// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cleanup leaves nothing of a session of real nodes behind, however it ended. What the kernel does not end with the
// session's namespaces is its directories and cgroups: they are written down before they are made, and removed by a watcher
// of its own process group as soon as the session is gone, or, should that have been killed as well, by the next session.
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
	// BaseDir holds a directory for each session, for root alone.
	BaseDir = "/run/crane-nodes"
	// Prefix begins the name of every cgroup and directory that a session makes.
	Prefix = "crane-nodes-"

	recordFile = "session.json"
	lockFile   = "lock"
	// bound of the removal of one thing. A thousandth of it is what it takes once the processes are gone.
	bound = 20 * time.Second
)

// Record is what there is to remove.
type Record struct {
	Group hostcgroup.Group `json:"group"`
	// Dirs hold the session's state.
	Dirs []string `json:"dirs"`
}

// Session is an entry in BaseDir, taken by this process.
type Session struct {
	dir  string
	lock *os.File
}

// Open makes the entry of a session. It is free for removal when this process ends.
func Open(id string) (*Session, error) {
	if err := os.MkdirAll(BaseDir, 0o700); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	if err := trusted(BaseDir); err != nil {
		return nil, err
	}
	s := &Session{dir: filepath.Join(BaseDir, id)}
	fresh := s.dir + ".new"
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	var err error
	if s.lock, err = os.OpenFile(filepath.Join(fresh, lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open session: %w", err), os.RemoveAll(fresh))
	}
	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock session: %w", err), os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, s.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open session: %w", err), os.RemoveAll(fresh))
	}
	return s, nil
}

// trusted refuses a directory that somebody else could have written to: what it lists is removed by root.
func trusted(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory of this user alone (mode %s)", dir, info.Mode())
	}
	return nil
}

// Dir is the session's entry.
func (s *Session) Dir() string { return s.dir }

// Save writes down what is to be removed, before it is made.
func (s *Session) Save(r Record) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	name := filepath.Join(s.dir, recordFile)
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	return nil
}

// Close gives the entry up; whoever cleans may take it.
func (s *Session) Close() { s.lock.Close() }

// Watch waits for the end of alive, which every process of the session holds open at its other end, then removes what the
// entry at dir lists.
func Watch(dir string, alive io.Reader) error {
	if filepath.Dir(dir) != BaseDir {
		return fmt.Errorf("%s is not an entry of %s", dir, BaseDir)
	}
	// Only the end of the pipe matters, whether it comes as EOF or as an error.
	_, _ = io.Copy(io.Discard, alive)
	return clean(dir)
}

// Sweep removes what sessions left that have ended with their watchers. Sessions that live are not touched.
func Sweep() error {
	entries, err := os.ReadDir(BaseDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for ended sessions: %w", err)
	}
	if err := trusted(BaseDir); err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(BaseDir, e.Name())
		if free(dir) {
			errs = append(errs, clean(dir))
		}
	}
	return errors.Join(errs...)
}

// free tells whether no process holds the session.
func free(dir string) bool {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		return false // being made, or being removed
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
		return fmt.Errorf("clean %s: %w", dir, err)
	}
	var r Record
	if err := json.Unmarshal(content, &r); err != nil {
		return fmt.Errorf("clean %s: %w", dir, err)
	}
	for _, path := range append(append([]string{}, r.Group.Dirs...), r.Dirs...) {
		if !strings.HasPrefix(filepath.Base(path), Prefix) || !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return fmt.Errorf("clean %s: %q is not a path that a session makes", dir, path)
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

// remove removes a directory in which a dying process may still write.
func remove(dir string) error {
	deadline := time.Now().Add(bound)
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			_ = os.Remove(BaseDir) // succeeds for the last session alone
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
