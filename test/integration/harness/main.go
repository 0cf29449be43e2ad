// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"crane.io/crane/internal/controlplane"
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
	status = controlplane.ForMain(runner(func() int {
		if failed != nil {
			return 1
		}
		return m.Run()
	}), s.Plane, func(c *controlplane.ControlPlane) { failed = s.furnish(ctx, c, binary) })
	return status, failed
}

func (s Suite) furnish(ctx context.Context, c *controlplane.ControlPlane, binary string) error {
	kinds := s.Kinds
	if kinds == nil {
		kinds = Everything
	}
	if err := Install(ctx, c.Config(), s.Name+"-test", kinds); err != nil {
		return err
	}
	return s.Ready(ctx, c, binary)
}

type runner func() int

func (r runner) Run() int { return r() }
