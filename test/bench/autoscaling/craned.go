// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"crane.io/crane/internal/controlplane"
)

// craned is the process that is measured; its log is a file.
type craned struct {
	cmd *exec.Cmd
	log *os.File
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
	d := &craned{log: log}
	d.cmd = exec.CommandContext(ctx, filepath.Join(o.bin, "craned"),
		"--kubeconfig="+kubeconfig, "--prometheus-address=http://127.0.0.1:1", "--controllers=effectivehpa", "--webhook-enabled=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--server-bind-port=0")
	d.cmd.Env = append(os.Environ(), "CRANE_SYSTEM_NAMESPACE=crane-system", "HOME="+scratch)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = 30 * time.Second
	return d, d.cmd.Start()
}

// tail is the end of the log, as an error to go with another.
func (d *craned) tail() error {
	const most = 8 << 10
	raw, err := os.ReadFile(d.log.Name())
	if err != nil {
		return err
	}
	return fmt.Errorf("craned said last:\n%s", raw[max(0, len(raw)-most):])
}

func (d *craned) stop() error {
	defer d.log.Close()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.cmd.Wait()
}
