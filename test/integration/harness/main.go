// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
)

// Suite configures what the tests of a package share because its start takes longer than a test.
type Suite struct {
	// Name is the name of the package, used for its directory and as field manager of config/.
	Name string
	// Command is the command to run; empty for none. It is built unless CRANE_BIN names a directory that has it.
	Command string
	// BuildFlags are the flags of go build for the command. With flags it is not taken from CRANE_BIN.
	BuildFlags []string
	// BinaryEnv is the environment variable with the path of a built command, which is used instead of a build. It may be
	// empty.
	BinaryEnv string
	Plane     controlplane.Options
	// Kinds selects the kinds of config/ to install; nil means all.
	Kinds func(kind string) bool
	// Before is called with a temporary directory before the control plane starts. It may be nil.
	Before func(ctx context.Context, dir string) error
	// Parallel is the number of parallel tests; 0 means the number of CPUs. Tests mostly wait.
	Parallel int
	// Beside starts background processes before Ready is called and returns a function that stops them, which is called
	// before the control plane stops. It may be nil.
	Beside func(ctx context.Context, c *controlplane.ControlPlane) (stop func() error, err error)
	// Ready is called with the control plane and the path of the command after config/ has been installed. It may be nil.
	Ready func(ctx context.Context, c *controlplane.ControlPlane, binary string) error
	// After is called after the tests, or if they did not run, before the directory is removed. It may be nil.
	After func() error
}

// Main runs the tests of a package and returns the exit status. If the setup fails, no test runs.
func Main(m controlplanetest.Runner, s Suite) int {
	status, err := s.run(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(status, 1)
	}

	return status
}

func (s Suite) run(ctx context.Context, m controlplanetest.Runner) (status int, err error) {
	if s.Parallel > 0 {
		if err := flag.Set("test.parallel", strconv.Itoa(s.Parallel)); err != nil {
			return 1, fmt.Errorf("running tests beside each other: %w", err)
		}
	}

	dir, err := os.MkdirTemp("", s.Name+"-test-")
	if err != nil {
		return 1, fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	if s.After != nil {
		defer func() { err = errors.Join(err, s.After()) }()
	}

	binary, err := s.binary(ctx, dir)
	if err != nil {
		return 1, err
	}

	if s.Before != nil {
		if err := s.Before(ctx, dir); err != nil {
			return 1, err
		}
	}

	// ForMain returns a status only, so that errors of the set-up are carried past it.
	var failed error
	stop := func() error { return nil }

	status = controlplanetest.ForMain(runner(func() int {
		code := 1
		if failed == nil {
			code = m.Run()
		}

		failed = errors.Join(failed, stop())
		return code
	}), s.Plane, func(c *controlplane.ControlPlane) {
		if failed = s.install(ctx, c); failed != nil {
			return
		}

		if s.Beside != nil {
			end, err := s.Beside(ctx, c)
			failed = err

			if err != nil {
				return
			}

			stop = end
		}

		if s.Ready != nil {
			failed = s.Ready(ctx, c, binary)
		}
	})

	return status, failed
}

// binary returns the path of the command, which is built in a directory unless the environment names a built one.
func (s Suite) binary(ctx context.Context, dir string) (string, error) {
	if s.BinaryEnv != "" && os.Getenv(s.BinaryEnv) != "" {
		return os.Getenv(s.BinaryEnv), nil
	}

	if s.Command == "" {
		return "", nil
	}

	if len(s.BuildFlags) == 0 {
		return Binary(ctx, dir, s.Command)
	}

	path := filepath.Join(dir, s.Command)
	return path, Build(ctx, path, s.Command, s.BuildFlags...)
}

func (s Suite) install(ctx context.Context, c *controlplane.ControlPlane) error {
	kinds := s.Kinds
	if kinds == nil {
		kinds = Everything
	}

	return Install(ctx, c.Config(), s.Name+"-test", kinds)
}

type runner func() int

func (r runner) Run() int { return r() }
