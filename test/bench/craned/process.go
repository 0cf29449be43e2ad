// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"crane.io/crane/internal/testbed/controlplane"
)

// craned is the process that is measured.
type craned struct {
	cmd   *exec.Cmd
	pprof string
	log   *lastLines
	// ended is closed when the process has ended, by itself or not.
	ended chan struct{}
	err   error
}

// lastLines keeps the end of a log.
type lastLines struct {
	mu  sync.Mutex
	buf []byte
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.buf = append(l.buf, p...)
	if over := len(l.buf) - 16<<10; over > 0 {
		l.buf = bytes.Clone(l.buf[over:])
	}

	return len(p), nil
}

func startCraned(ctx context.Context, o options, c *cluster, prometheus, scratch string) (*craned, error) {
	kubeconfig, err := c.control.KubeconfigFor(ctx, "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		return nil, err
	}

	addresses, err := freeAddresses(ctx, 4)
	if err != nil {
		return nil, err
	}

	_, port, err := net.SplitHostPort(addresses[3])
	if err != nil {
		return nil, err
	}

	d := &craned{pprof: addresses[0], log: &lastLines{}}
	d.cmd = exec.CommandContext(ctx, filepath.Join(o.bin, "craned"),
		"--kubeconfig="+kubeconfig, "--prometheus-address="+prometheus, "--webhook-enabled=false",
		"--metrics-bind-address="+addresses[1], "--health-probe-bind-address="+addresses[2], "--pprof-bind-address="+d.pprof,
		"--server-bind-port="+port,
		"--controllers=*,-nodeload,-rebalance", // The data set has no nodes to read the load of.
		// Whatever else runs on the machine, the lease is not to be lost for it.
		"--lease-duration=120s", "--lease-renew-period=100s", "--lease-retry-period=5s",
	)

	// The limit is that of config/craned/deployment.yaml.
	d.cmd.Env = append(os.Environ(), "GOMEMLIMIT=900MiB", "CRANE_SYSTEM_NAMESPACE=crane-system", "HOME="+scratch)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log

	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = 30 * time.Second
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}

	d.ended = make(chan struct{})
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()

	return d, nil
}

// alive is an error where the process has ended.
func (d *craned) alive() error {
	select {
	case <-d.ended:
		return fmt.Errorf("craned has ended: %w", errors.Join(d.err, d.tail()))
	default:
		return nil
	}
}

func freeAddresses(ctx context.Context, n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()

		out[i] = l.Addr().String()
	}

	return out, nil
}

// heap is what is in use after a collection.
func (d *craned) heap(ctx context.Context) (int64, error) {
	page, err := get(ctx, "http://"+d.pprof+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(page) {
		if rest, found := strings.CutPrefix(line, "# HeapAlloc = "); found {
			return strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		}
	}

	return 0, errors.New("the profile does not say how large the heap is")
}

// profile writes one of craned's profiles into a file of a directory; nothing without one.
func (d *craned) profile(ctx context.Context, dir, file, path string) error {
	if dir == "" {
		return nil
	}

	page, err := get(ctx, "http://"+d.pprof+"/debug/pprof/"+path)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, file), []byte(page), 0o600)
}

// tail is the end of the log, as an error to go with another.
func (d *craned) tail() error {
	d.log.mu.Lock()
	defer d.log.mu.Unlock()

	return fmt.Errorf("craned said last:\n%s", d.log.buf)
}

func (d *craned) stop() error {
	select {
	case <-d.ended:
		return nil // The caller that waited has reported it.
	default:
	}

	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}

	<-d.ended
	return d.err
}
