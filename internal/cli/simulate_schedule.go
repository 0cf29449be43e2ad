// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// schedulerBinary is what simulates scheduling. It carries Kubernetes' scheduler, which this command does not.
const schedulerBinary = "crane-scheduler"

// stopGrace is how long the simulator has to end after an interrupt.
const stopGrace = 5 * time.Second

func newSimulateScheduleCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schedule [flags of crane-scheduler simulate]",
		Short: "Compare ways to schedule, with the real scheduler in virtual time",
		Long: "schedule runs `crane-scheduler simulate` with the flags that it is given: the binary beside this one, else the one in PATH.\n" +
			"`crane simulate schedule --help` lists the flags.",
		Example: "  crane simulate schedule --nodes 300 --seeds 3\n  crane simulate schedule --scenario all -o markdown",
		// All flags are crane-scheduler's.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runScheduler(cmd.Context(), s, append([]string{"simulate"}, args...))
		},
	}
}

// runScheduler runs crane-scheduler and hands its streams through. Its exit code becomes this command's.
func runScheduler(ctx context.Context, s Streams, args []string) error {
	path, err := findScheduler()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &exitError{code: exit.ExitCode(), err: fmt.Errorf("%s simulate: %w", schedulerBinary, err)}
	}
	if err != nil {
		return fmt.Errorf("running %s: %w", path, err)
	}
	return nil
}

// findScheduler looks beside this binary, behind links as well, and in PATH.
func findScheduler() (string, error) {
	if self, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(self); err == nil {
			self = target
		}
		beside := filepath.Join(filepath.Dir(self), schedulerBinary)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	path, err := exec.LookPath(schedulerBinary)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor in PATH: build it with `make build`: %w", schedulerBinary, err)
	}
	return path, nil
}
