// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplanetest runs control planes for tests.
package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"crane.io/crane/internal/testbed/controlplane"
)

// testStop bounds the shutdown of a test's control plane.
const testStop = 30 * time.Second

// ForTest runs a control plane for the duration of a test. It builds the binary, without the race detector, unless
// Options or the environment name one, fails the test if the control plane does not start, and checks at the end that
// no process is left. If the test failed, it logs the last lines of the components.
func ForTest(t testing.TB, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()

	c, err := start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}

	t.Cleanup(func() {
		if t.Failed() {
			for _, component := range c.Running() {
				t.Logf("last lines of %s:\n%s", component, strings.Join(c.LastLines(component), "\n"))
			}
		}

		if err := stop(c); err != nil {
			t.Errorf("%v", err)
		}
	})

	return c
}

// Runner is the subset of *testing.M that ForMain uses.
type Runner interface{ Run() int }

// ForMain runs the tests of a package with one shared control plane, which it passes to use, and returns the exit
// status:
//
//	func TestMain(m *testing.M) {
//	os.Exit(controlplanetest.ForMain(m, controlplane.Options{}, func(c *controlplane.ControlPlane) { shared = c }))
//	}
func ForMain(m Runner, o controlplane.Options, use func(*controlplane.ControlPlane)) (status int) {
	c, err := start(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := stop(c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}()

	use(c)
	return m.Run()
}

func start(ctx context.Context, o controlplane.Options) (*controlplane.ControlPlane, error) {
	if o.Binary == "" && os.Getenv(controlplane.BinaryEnv) == "" {
		binary, err := buildBinary(ctx)
		if err != nil {
			return nil, err
		}

		o.Binary = binary
	}

	return controlplane.Start(ctx, o)
}

// stop stops the control plane and reports processes of its process groups that are left.
func stop(c *controlplane.ControlPlane) error {
	ctx, cancel := context.WithTimeout(context.Background(), testStop)
	defer cancel()

	pids := map[controlplane.Component]int{}
	for _, component := range c.Running() {
		pids[component] = c.PID(component)
	}

	err := c.Stop(ctx)
	for component, pid := range pids {
		if !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("a process of %s (group %d) is left after Stop", component, pid))
		}
	}

	return err
}
