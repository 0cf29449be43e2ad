// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// testStop bounds the shutdown of a test's control plane.
const testStop = 30 * time.Second

// TB is the subset of testing.TB that ForTest uses, so that programs do not link package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Context() context.Context
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ForTest runs a control plane for the duration of a test. It builds the binary, without the race detector, unless
// Options or the environment name one, fails the test if the control plane does not start, and checks at the end that
// no process is left. If the test failed, it logs the last lines of the components.
func ForTest(t TB, o Options) *ControlPlane {
	t.Helper()
	c, err := startForTest(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, component := range c.running() {
				t.Logf("last lines of %s:\n%s", component, strings.Join(c.LastLines(component), "\n"))
			}
		}
		if err := c.stopForTest(); err != nil {
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
//	os.Exit(controlplane.ForMain(m, controlplane.Options{}, func(c *controlplane.ControlPlane) { shared = c }))
//	}
func ForMain(m Runner, o Options, use func(*ControlPlane)) (status int) {
	c, err := startForTest(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := c.stopForTest(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}()
	use(c)
	return m.Run()
}

func startForTest(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.Binary == "" && os.Getenv(BinaryEnv) == "" {
		binary, err := buildBinary(ctx)
		if err != nil {
			return nil, err
		}
		o.Binary = binary
	}
	return Start(ctx, o)
}

// stopForTest stops the control plane and reports processes of its process groups that are left.
func (c *ControlPlane) stopForTest() error {
	ctx, cancel := context.WithTimeout(context.Background(), testStop)
	defer cancel()
	pids := map[Component]int{}
	for _, component := range c.running() {
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
