// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"crane.io/crane/internal/testbed/simnode/kernel/conformance"
)

// cgroups reads and writes cgroup files, as an agent in a DaemonSet does through a host path:
//
//	cgroups stay                   wait for SIGTERM, so that other commands can be executed beside it
//	cgroups read FILE...           print the files
//	cgroups write FILE VALUE       write one value
//	cgroups walk DIR NAME...       print every file below DIR that has one of the names, as JSON by path, without space around it
//	cgroups copy DIR NAME...       the same with the contents as they are
//	cgroups dump FILE...           print files as JSON by path, with the contents as they are
//	cgroups play DIR STEPS         make the group DIR of cgroup v2, do steps of conformance in it, given as JSON, print the answers, remove it
//	cgroups hold MIB               allocate memory; the process that such steps move to groups
//	cgroups in ROOT COMMAND...     chroot to ROOT and execute a command
func cgroups(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("cgroups: want stay, read, write, walk, copy, dump, play or in")
	}

	verbs := map[string]struct {
		minArgs, maxArgs int // arguments
		do               func(args []string) error
	}{
		"stay":  {0, 0, func([]string) error { <-terminated(); return nil }},
		"read":  {1, many, func(args []string) error { return readFiles(args, out) }},
		"write": {2, 2, func(args []string) error { return writeFile(args[0], args[1]) }},
		"walk":  {2, many, func(args []string) error { return walk(args[0], args[1:], strings.TrimSpace, out) }},
		"copy":  {2, many, func(args []string) error { return walk(args[0], args[1:], strings.Clone, out) }},
		"dump":  {1, many, func(args []string) error { return dump(args, out) }},
		"play":  {2, 2, func(args []string) error { return play(args[0], args[1], out) }},
		"hold":  {1, 1, func(args []string) error { return hold(args[0], out) }},
		"in":    {2, many, func(args []string) error { return become(args[0], args[1:]) }},
	}

	verb, found := verbs[args[0]]
	if n := len(args) - 1; !found || n < verb.minArgs || n > verb.maxArgs {
		return fmt.Errorf("cgroups: cannot %q", args)
	}

	return verb.do(args[1:])
}

// many is the maximum of commands with any number of arguments.
const many = math.MaxInt

// writeFile writes to an existing file; it does not create a plain file in place of a missing kernel file.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func readFiles(files []string, out io.Writer) error {
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		if _, err := out.Write(content); err != nil {
			return err
		}
	}

	return nil
}

func dump(files []string, out io.Writer) error {
	found := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		found[file] = string(content)
	}

	return writeReport(out, found)
}

func walk(dir string, names []string, edit func(string) string, out io.Writer) error {
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the cgroup has been removed
		}

		if err != nil || entry.IsDir() || !slices.Contains(names, entry.Name()) {
			return err
		}

		content, err := os.ReadFile(path)
		// Write-only files such as memory.reclaim are included.
		if err == nil || errors.Is(err, syscall.EINVAL) {
			found[strings.TrimPrefix(path, dir)] = edit(string(content))
		}

		return nil
	})
	if err != nil {
		return err
	}

	return writeReport(out, found)
}

// become executes a command in place of this process. It returns only on error.
func become(root string, command []string) error {
	if err := errors.Join(syscall.Chroot(root), os.Chdir("/")); err != nil {
		return fmt.Errorf("entering %s: %w", root, err)
	}

	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("in %s: %w", root, err)
	}

	return syscall.Exec(path, command, os.Environ())
}

// play runs conformance steps in a temporary cgroup.
func play(dir, steps string, out io.Writer) error {
	var list []conformance.Step
	if err := json.Unmarshal([]byte(steps), &list); err != nil {
		return fmt.Errorf("cgroups: steps: %w", err)
	}

	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}

	player := &conformance.Real{Roots: map[string]string{"": dir}, Holder: func(load string) *exec.Cmd {
		// This program, wherever it is installed. It ends with its input.
		return exec.Command("/proc/self/exe", "cgroups", "hold", load) //nolint:noctx // Real ends it.
	}}
	outcomes := conformance.Play(player, list)

	if err := errors.Join(player.Close(), os.Remove(dir)); err != nil {
		return err
	}

	return writeReport(out, outcomes)
}

// hold is a process that steps move to groups.
func hold(mib string, out io.Writer) error {
	if err := conformance.Hold(mib, os.Stdin, out); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}

	return nil
}
