// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mortal changes limits of a container on a real kernel as the agent does. For each write to a kernel file it runs once, is
// killed with SIGKILL before or after that write, and undoes the changes as a starting agent does.
//
//	mortal ROOT DIR GROUP
//
// ROOT is the node's root directory, DIR is for journals, GROUP is the container's cgroup below the root of a hierarchy. It
// prints a line per kill and fails if a setting of the container or its pod differs from its original value.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// scenarioEnv holds the scenario of a child process that will be killed.
const scenarioEnv = "CRANE_AGENT_TEST_LIFE"

func main() {
	err := errors.New("want the root of a node, a directory and a container's cgroup")
	if text := os.Getenv(scenarioEnv); text != "" {
		err = runScenario(text)
	} else if len(os.Args) == 4 {
		err = runAll(context.Background(), scenario{Root: os.Args[1], Group: os.Args[3]}, os.Args[2], os.Stdout)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "mortal:", err)
		os.Exit(1)
	}
}

// runAll runs all scenarios, for CPU and, if the kernel supports it, memory, each with one write more than the previous one.
func runAll(ctx context.Context, l scenario, dir string, out io.Writer) error {
	layout, err := cgroup.Detect(host.Root(l.Root))
	if err != nil {
		return fmt.Errorf("detecting cgroups: %w", err)
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making a directory for journals: %w", err)
	}

	l.Journal = filepath.Join(dir, "changes.json")
	deaths, interrupted := 0, 0
	for _, l.Memory = range []bool{false, true} {
		if _, can := layout.ReclaimFile(l.Group); l.Memory && !can {
			continue
		}

		for _, l.DieAfter = range []bool{false, true} {
			for l.Writes = 0; ; l.Writes++ {
				died, changes, err := l.runOnce(ctx, layout, out)
				if err != nil {
					return err
				}

				if !died {
					break
				}

				deaths++

				if changes > 0 {
					interrupted++
				}
			}
		}
	}

	_, err = fmt.Fprintf(out, "killed at %d points, at %d with changes in force\n", deaths, interrupted)
	return err
}

// runOnce runs one scenario and undoes it. changes is the number of settings that differed before the undo.
func (l scenario) runOnce(ctx context.Context, layout cgroup.Layout, out io.Writer) (died bool, changes int, err error) {
	before, err := readSettings(layout, l.Group)
	if err != nil {
		return false, 0, err
	}

	died, file, err := l.runProcess(ctx)
	if err != nil {
		return false, 0, err
	}

	changed := func() (n int, err error) {
		now, err := readSettings(layout, l.Group)
		for path, value := range before {
			if now[path] != value {
				n++
				err = errors.Join(err, fmt.Errorf("%s: %s, was %s", path, now[path], value))
			}
		}

		return n, err
	}

	if !died {
		_, err := changed()
		return false, 0, err
	}

	changes, _ = changed()
	when := "before"
	if l.DieAfter {
		when = "after"
	}

	if _, err := fmt.Fprintf(out, "killed %s write %d, of %s: %d settings were left\n", when, l.Writes, file, changes); err != nil {
		return true, changes, err
	}

	_, journal, err := l.openJournal(act.KernelFileWriter{})
	if err != nil {
		return true, changes, err
	}

	err = journal.UndoAll()
	if n := len(journal.Entries()); n > 0 {
		err = errors.Join(err, fmt.Errorf("the journal holds %d units after it was undone", n))
	}

	_, restoreErr := changed()
	return true, changes, errors.Join(err, restoreErr, os.RemoveAll(l.Journal))
}

// runProcess runs the scenario in a child process and reports whether SIGKILL ended it, and at which file.
func (l scenario) runProcess(ctx context.Context) (died bool, file string, err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return false, "", fmt.Errorf("encoding the scenario: %w", err)
	}

	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), scenarioEnv+"="+string(text))
	var said, problem bytes.Buffer
	cmd.Stdout = &said
	cmd.Stderr = &problem

	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return true, said.String(), nil
		}
	}

	if err != nil {
		return false, "", fmt.Errorf("%w: %s", err, problem.String())
	}

	return false, "", nil
}

// readSettings returns the settings of a container's group and its pod's by file.
func readSettings(layout cgroup.Layout, group string) (map[string]string, error) {
	out := map[string]string{}
	for _, g := range []string{group, filepath.Dir(group)} {
		for _, name := range []string{
			cgroup.FileMax, cgroup.FileMaxBurst, cgroup.FileWeight, cgroup.FileIdle, cgroup.FileHigh, cgroup.FileMemory, cgroup.FileCPUs,
			cgroup.FileQuotaV1, cgroup.FilePeriodV1, cgroup.FileBurstV1, cgroup.FileSharesV1, cgroup.FileMemoryV1,
		} {
			path, err := layout.SettingFile(g, name)
			if err != nil {
				continue // a setting of the other version
			}

			content, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // an older kernel
			}
			if err != nil {
				return nil, fmt.Errorf("reading settings: %w", err)
			}

			out[path] = string(bytes.TrimSpace(content))
		}
	}

	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no settings", group)
	}

	return out, nil
}
