// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"crane.io/crane/internal/testbed/controlplane"
)

// craned is the measured process; its log is a file.
type craned struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
	err  error // exit error, valid after done
}

func startCraned(ctx context.Context, o options, c *cluster, scratch string) (*craned, error) {
	kubeconfig, err := c.control.KubeconfigFor(ctx, "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		return nil, err
	}

	log, err := os.Create(filepath.Join(scratch, "craned.log"))
	if err != nil {
		return nil, err
	}

	d := &craned{log: log, done: make(chan struct{})}
	d.cmd = exec.CommandContext(ctx, filepath.Join(o.bin, "craned"),
		"--kubeconfig="+kubeconfig, "--prometheus-address=http://127.0.0.1:1", "--controllers=effectivehpa", "--webhook-enabled=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--server-bind-port=0",
		// craned exits when it loses its lease, which must not happen under load.
		"--lease-duration=5m", "--lease-renew-period=4m")

	d.cmd.Env = append(os.Environ(), "CRANE_SYSTEM_NAMESPACE=crane-system", "HOME="+scratch)
	d.cmd.Stdout = log
	d.cmd.Stderr = log

	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = 30 * time.Second
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}

	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()

	return d, nil
}

// tail returns the end of the log as an error.
func (d *craned) tail() error {
	const tailBytes = 8 << 10
	raw, err := os.ReadFile(d.log.Name())
	if err != nil {
		return err
	}

	return fmt.Errorf("end of the log of craned:\n%s", raw[max(0, len(raw)-tailBytes):])
}

func (d *craned) stop() error {
	defer d.log.Close()

	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}

	<-d.done
	return d.err
}
