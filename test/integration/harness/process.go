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

// Process is a process of a test.
type Process struct {
	// Log is the output of the process.
	Log *Log

	cmd   *exec.Cmd
	bound time.Duration
	done  chan struct{}
	err   error
}

// Log stores the output of a process.
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

// Start runs a binary with the environment of namespace crane-system. At the end of the test it is stopped gracefully,
// so that it releases its lease; bound limits the shutdown. craned runs without webhooks unless its arguments configure
// them.
func Start(t testing.TB, bound time.Duration, binary string, args ...string) *Process {
	t.Helper()

	if filepath.Base(binary) == "craned" && !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--webhook-") }) {
		args = append(args, "--webhook-enabled=false") // two instances would use the same port
	}

	p := &Process{Log: &Log{}, bound: bound, done: make(chan struct{})}
	// The context of the test ends before its cleanup, which stops the process gracefully.
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

// Done returns a channel that is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the exit error. It must be called after Done is closed.
func (p *Process) Err() error { return p.err }

// Kill kills the process and waits for its exit.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Signal sends a signal, such as SIGSTOP to simulate a hanging process.
func (p *Process) Signal(s os.Signal) error {
	return p.cmd.Process.Signal(s)
}

// Stop sends SIGTERM like a kubelet and waits for the exit. It is idempotent.
func (p *Process) Stop(t testing.TB) {
	t.Helper()

	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(p.bound):
		p.Kill()
		t.Error("the process did not end after SIGTERM, want its end")
	}
}

// Terminate sends SIGTERM to a running process and returns its exit error.
func (p *Process) Terminate(t testing.TB) error {
	t.Helper()

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	select {
	case <-p.done:
		return p.err
	case <-time.After(p.bound):
		t.Fatal("the process did not end after SIGTERM, want its end")
		return nil
	}
}
