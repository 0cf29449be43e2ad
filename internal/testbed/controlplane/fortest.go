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

// testStop bounds the end of a test's control plane.
const testStop = 30 * time.Second

// TB is what ForTest needs of testing.TB, which satisfies it; so that programs do not link package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Context() context.Context
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ForTest runs a control plane for the length of a test. It builds the binary without the race detector if need be,
// fails the test where the control plane does not start, and checks at the end that no process is left. The last lines
// of the components are logged if the test failed.
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

// Runner is what ForMain needs of *testing.M, which satisfies it.
type Runner interface{ Run() int }

// ForMain runs a package's tests with one control plane shared by all of them, handed over by use, and returns the exit
// status:
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.ForMain(m, controlplane.Options{}, func(c *controlplane.ControlPlane) { shared = c }))
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

// stopForTest stops the control plane and looks for processes of its groups.
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
