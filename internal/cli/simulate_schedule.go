// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/metrics/progressline"
)

// schedulerBinary runs the simulation. It contains the Kubernetes scheduler, which this command does not.
const schedulerBinary = "crane-scheduler"

// schedulerStopTimeout is the time for the simulator to end after an interrupt.
const schedulerStopTimeout = 5 * time.Second

func newSimulateScheduleCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schedule [flags of crane-scheduler simulate]",
		Short: "Compare scheduling policies with the real scheduler in simulated time",
		Long: "Schedule runs `crane-scheduler simulate` with the given flags: the binary in the directory of crane, or else in PATH.\n" +
			"`crane simulate schedule --help` lists the flags.",
		Example: "  crane simulate schedule --nodes 300 --seeds 3\n  crane simulate schedule --scenario all -o markdown",
		// The flags belong to crane-scheduler.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runScheduler(cmd.Context(), s, append([]string{"simulate"}, args...))
		},
	}
}

// runScheduler runs crane-scheduler with the streams of the command and returns its exit code.
func runScheduler(ctx context.Context, s Streams, args []string) error {
	path, err := findScheduler()
	if err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, path, args...)
	progress := progressline.New(s.Err, "simulating", nil)
	defer progress.Stop()

	cmd.Stdin = s.In
	cmd.Stdout = stopWriter{progress, s.Out}
	cmd.Stderr = progress
	// The scheduler ends its simulation in order; the default would kill it.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = schedulerStopTimeout

	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &exitError{code: exit.ExitCode(), err: fmt.Errorf("%s simulate: %w", schedulerBinary, err)}
	}

	if err != nil {
		return fmt.Errorf("running %s: %w", path, err)
	}

	return nil
}

// stopWriter stops a progress before it writes.
type stopWriter struct {
	progress *progressline.Line
	out      io.Writer
}

func (w stopWriter) Write(b []byte) (int, error) {
	w.progress.Stop()
	return w.out.Write(b)
}

// findScheduler searches the directory of this binary, with links resolved, and PATH.
func findScheduler() (string, error) {
	if self, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(self); err == nil {
			self = target
		}

		candidate := filepath.Join(filepath.Dir(self), schedulerBinary)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}

	path, err := exec.LookPath(schedulerBinary)
	if err != nil {
		return "", fmt.Errorf("%s is neither in the directory of crane nor in PATH: build it with `make build`: %w", schedulerBinary, err)
	}

	return path, nil
}
