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
	"syscall"
	"time"
)

// Real runs steps on the real kernel.
type Real struct {
	// Roots maps cgroup v1 controllers to the directories of the test's group; for v2 the only key is "".
	Roots map[string]string
	// Holder returns the command of a program that calls Hold.
	Holder func(load string) *exec.Cmd

	processes map[string][]*exec.Cmd
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
	case Throttled:
		return r.throttled(s.Path)
	case Write, Read:
		return r.file(s)
	}

	return "", fmt.Errorf("no operation %q", s.Op)
}

// inAll calls do for each hierarchy up to the first error.
func (r *Real) inAll(do func(dir string) error) error {
	for _, dir := range r.dirs() {
		if err := do(dir); err != nil {
			return err
		}
	}

	return nil
}

// dirs returns the distinct roots: v1 mounts some controllers together.
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

// rmdir removes a directory and returns the plain errno.
func rmdir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is no directory", dir)
	}

	if err == nil {
		err = os.Remove(dir)
	}

	return err
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
		return "", err // not readable
	}

	content, readErr := os.ReadFile(path)
	return string(content), errors.Join(err, readErr)
}

// write opens without O_CREATE, so that missing kernel files are not created. os.File would retry forever on EAGAIN.
func write(path, value string) error {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err == nil {
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			_, err = syscall.Write(fd, []byte(value+"\n"))
		}
		err = errors.Join(err, syscall.Close(fd))
	}

	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	return nil
}

// enter starts a process, moves it to the group and lets it allocate its memory there.
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

	// A process that cannot enter the group ends; leave ends all others.
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
		return fmt.Errorf("enter: no response of the process: %w", err)
	}

	if r.processes == nil {
		r.processes = map[string][]*exec.Cmd{}
	}

	r.processes[s.Path] = append(r.processes[s.Path], cmd)
	return nil
}

// leave kills processes and waits for them, after which they are in no group.
func (r *Real) leave(group string) error {
	for _, cmd := range r.processes[group] {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}

	delete(r.processes, group)
	return nil
}

// Close kills all processes and removes the groups below the test's.
func (r *Real) Close() error {
	for group := range r.processes {
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
		return err
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

const (
	// throttledBound bounds the wait for a throttled group, also on a busy machine.
	throttledBound = 20 * time.Second
	// unthrottledAfter is the time after which a group without a quota counts as not throttled.
	unthrottledAfter = time.Second
	// readInterval is the interval between reads.
	readInterval = 20 * time.Millisecond
)

// throttled reports whether quotas throttle a group from now on.
func (r *Real) throttled(group string) (string, error) {
	root, ok := r.Roots["cpu"]
	if !ok {
		root = r.Roots[""]
	}

	file := filepath.Join(root, group, "cpu.stat")
	before, limited, err := readThrottling(file)
	for begin := time.Now(); err == nil; time.Sleep(readInterval) {
		bound := unthrottledAfter
		if limited {
			bound = throttledBound
		}

		if time.Since(begin) > bound {
			return "no", nil
		}

		var now int64
		if now, limited, err = readThrottling(file); now > before {
			return "yes", nil
		}
	}

	return "", err
}

// readThrottling returns the number of throttled periods of a group and whether it has a quota, whose periods are counted.
func readThrottling(file string) (times int64, limited bool, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, false, err
	}

	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
			return 0, false, fmt.Errorf("%s: %w", file, err)
		case key == "nr_throttled":
			times = n
		case key == "nr_periods":
			limited = n > 0
		}
	}

	return times, limited, nil
}

// Hold is the process that Enter moves to a group: it waits for a line, then allocates memory in MiB or uses CPU,
// reports it, and runs until its input ends.
func Hold(load string, in io.Reader, out io.Writer) error {
	n := 0
	if load != "" && load != Spin {
		var err error
		if n, err = strconv.Atoi(load); err != nil {
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

	if load == Spin {
		go func() {
			for i := 0; ; i++ {
				_ = i * i
			}
		}()
	}

	_, err := io.Copy(io.Discard, reader)
	if len(memory) > 0 {
		memory[0]++ // keeps the memory allocated
	}

	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}

	return nil
}
