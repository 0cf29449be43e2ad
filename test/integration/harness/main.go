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
)

// Suite is what the tests of a package share: starting it takes longer than any of the tests.
type Suite struct {
	// Name is that of the package: of the directory that it gets, and of who installs config/.
	Name string
	// Command is built; empty for none.
	Command string
	Plane   controlplane.Options
	// Kinds are those of config/ that are installed; nil for all of them.
	Kinds func(kind string) bool
	// Before is called before the control plane starts, with the directory, which goes when the tests have ended. It may be nil.
	Before func(ctx context.Context, dir string) error
	// Parallel is how many tests of the package run at once; 0 for as many as there are cores. Tests mostly wait.
	Parallel int
	// Beside starts what runs beside the tests, before Ready is called, and returns what ends it, which is called before the control
	// plane ends. It may be nil.
	Beside func(ctx context.Context, c *controlplane.ControlPlane) (stop func() error, err error)
	// Ready is called with the control plane, when config/ is installed, and the path of the command.
	Ready func(ctx context.Context, c *controlplane.ControlPlane, binary string) error
	// After is called when the tests have ended, or have not run, before the directory goes. It may be nil.
	After func() error
}

// Main runs the tests of a package, and returns the exit status. Where something of the suite fails no test runs.
func Main(m controlplane.Runner, s Suite) int {
	status, err := s.run(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(status, 1)
	}
	return status
}

func (s Suite) run(ctx context.Context, m controlplane.Runner) (status int, err error) {
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
	binary := ""
	if s.Command != "" {
		binary = filepath.Join(dir, s.Command)
		if err := Build(ctx, binary, s.Command); err != nil {
			return 1, err
		}
	}
	if s.Before != nil {
		if err := s.Before(ctx, dir); err != nil {
			return 1, err
		}
	}
	var failed error
	stop := func() error { return nil }
	status = controlplane.ForMain(runner(func() int {
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
			if failed = err; err != nil {
				return
			}
			stop = end
		}
		failed = s.Ready(ctx, c, binary)
	})
	return status, failed
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
