// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Real plays steps in groups of the kernel that it runs on.
type Real struct {
	// Roots are the directories of the group that all is played in, by the controllers of cgroup v1; of v2 it is one, under "".
	Roots map[string]string
	// Holder is the command line of a program that does what Hold does.
	Holder func(mib string) *exec.Cmd

	held map[string][]*exec.Cmd
}

var _ Player = (*Real)(nil)

// Do implements Player.
func (r *Real) Do(s Step) (string, error) {
	switch s.Op {
	case Make:
		return "", r.inAll(func(dir string) error { return os.Mkdir(filepath.Join(dir, s.Path), 0o755) })
	case Remove:
		return "", r.inAll(func(dir string) error { return rmdir(filepath.Join(dir, s.Path)) })
	case Enter:
		return "", r.enter(s)
	case Leave:
		return "", r.leave(s.Path)
	case Write, Read:
		return r.file(s)
	}
	return "", fmt.Errorf("no operation %q", s.Op)
}

// inAll does something in each hierarchy up to the first error.
func (r *Real) inAll(do func(dir string) error) error {
	for _, dir := range r.dirs() {
		if err := do(dir); err != nil {
			return err
		}
	}
	return nil
}

// dirs are the roots, each once: v1 mounts some controllers together.
func (r *Real) dirs() []string {
	var out []string
	for _, dir := range r.Roots {
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	slices.Sort(out)
	return out
}

// rmdir is os.Remove for directories alone, whose error it says.
func rmdir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is no directory", dir)
	}
	if err == nil {
		err = os.Remove(dir)
	}
	return err //nolint:wrapcheck // The error names the directory.
}

func (r *Real) file(s Step) (string, error) {
	controller, _, _ := strings.Cut(filepath.Base(s.Path), ".")
	root, ok := r.Roots[controller]
	if !ok {
		if root, ok = r.Roots[""]; !ok {
			return "", fmt.Errorf("no hierarchy has %s", s.Path)
		}
	}
	path := filepath.Join(root, s.Path)
	var err error
	if s.Op == Write {
		err = write(path, s.Value)
	}
	if strings.HasSuffix(path, "memory.reclaim") {
		return "", err // It cannot be read.
	}
	content, readErr := os.ReadFile(path)
	return string(content), errors.Join(err, readErr)
}

// write opens without O_CREATE: what is no file of the kernel must not become one.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err //nolint:wrapcheck // The error names the file.
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// enter starts a process, puts it into the group and lets it take its memory there.
func (r *Real) enter(s Step) error {
	cmd := r.Holder(s.Value)
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := r.inAll(func(dir string) error { return write(filepath.Join(dir, s.Path, "cgroup.procs"), pid) }); err != nil {
		end()
		return err
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		end()
		return fmt.Errorf("enter: %w", err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		end()
		return fmt.Errorf("enter: the process says nothing: %w", err)
	}
	if r.held == nil {
		r.held = map[string][]*exec.Cmd{}
	}
	r.held[s.Path] = append(r.held[s.Path], cmd)
	return nil
}

// leave ends processes. When they have been waited for they are in no group any more.
func (r *Real) leave(group string) error {
	for _, cmd := range r.held[group] {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	delete(r.held, group)
	return nil
}

// Close ends all processes and removes the groups below those that all is played in.
func (r *Real) Close() error {
	for group := range r.held {
		_ = r.leave(group)
	}
	var errs []error
	for _, dir := range r.dirs() {
		errs = append(errs, removeBelow(dir))
	}
	return errors.Join(errs...)
}

func removeBelow(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err //nolint:wrapcheck // The error names the directory.
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below := filepath.Join(dir, e.Name())
		if err := removeBelow(below); err != nil {
			return err
		}
		if err := rmdir(below); err != nil {
			return err
		}
	}
	return nil
}

// Hold is the process that Enter puts into a group: it waits for a line, takes memory of so many MiB, says so, and goes on until its input
// ends.
func Hold(mib string, in io.Reader, out io.Writer) error {
	n := 0
	if mib != "" {
		var err error
		if n, err = strconv.Atoi(mib); err != nil {
			return fmt.Errorf("hold: %w", err)
		}
	}
	reader := bufio.NewReader(in)
	if _, err := reader.ReadString('\n'); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	const page = 4096
	memory := make([]byte, n<<20)
	for i := 0; i < len(memory); i += page {
		memory[i] = 1
	}
	if _, err := fmt.Fprintln(out, "held"); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	_, err := io.Copy(io.Discard, reader)
	if len(memory) > 0 {
		memory[0]++ // It has to live until here.
	}
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return nil
}
