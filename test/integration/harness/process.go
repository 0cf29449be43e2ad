// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a binary that runs for the length of a test.
type Process struct {
	// Log is what it wrote.
	Log *Log

	cmd   *exec.Cmd
	bound time.Duration
	done  chan struct{}
	err   error
}

// Log keeps what a process wrote.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Start runs a binary as in the namespace crane-system. At the end of the test it is stopped in order, so that it gives its lease
// back for the next test's; bound is how long that may take. A craned whose arguments say nothing of webhooks serves none.
func Start(t testing.TB, bound time.Duration, binary string, args ...string) *Process {
	t.Helper()
	if filepath.Base(binary) == "craned" && !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--webhook-") }) {
		args = append(args, "--webhook-enabled=false") // Two of them would want one port.
	}
	p := &Process{Log: &Log{}, bound: bound, done: make(chan struct{})}
	// The context of the test ends before its cleanup, which is to stop the process in order.
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	p.cmd.Env = append(os.Environ(), "CRANE_SYSTEM_NAMESPACE=crane-system")
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Stop(t)
		if t.Failed() {
			t.Logf("log of %s:\n%s", binary, p.Log)
		}
	})
	return p
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended; to be asked after Done.
func (p *Process) Err() error { return p.err }

// Kill ends the process without giving it time for anything.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Signal sends a signal, such as SIGSTOP for a process that hangs.
func (p *Process) Signal(s os.Signal) error {
	return p.cmd.Process.Signal(s)
}

// Stop asks the process to end, as a kubelet does. One that has ended stays so.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(p.bound):
		p.Kill()
		t.Error("the process did not end after SIGTERM")
	}
}

// Terminate asks a process that runs to end, and returns how it did.
func (p *Process) Terminate(t testing.TB) error {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(p.bound):
		t.Fatal("the process did not end after SIGTERM")
		return nil
	}
}
