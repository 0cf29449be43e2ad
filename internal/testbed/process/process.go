// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ErrKilled is returned by Stop when the process did not end by itself in time. It is gone nevertheless.
var ErrKilled = errors.New("killed, because it did not end by itself in time")

// pipeDelay bounds the wait for output after the process itself has ended.
const pipeDelay = 2 * time.Second

// Process is a running, possibly restarting child. Its methods may be called from any goroutine.
type Process struct {
	spec Spec
	out  *output

	stopOnce sync.Once
	stop     chan struct{} // closed by Stop: no restarts, SIGTERM
	killOnce sync.Once
	kill     chan struct{} // closed when Stop's context ends: SIGKILL now
	done     chan struct{} // closed when nothing runs any more

	mu       sync.Mutex
	pid      int
	restarts int
	killed   bool
	err      error
}

// child is one incarnation of the process.
type child struct {
	cmd  *exec.Cmd
	pipe *os.File // our end of its stdin: it sees EOF when we are gone

	mu    sync.Mutex
	ended bool // the pid may belong to someone else from now on
}

// Start runs spec's program and watches it until it has ended for good. The error is that of the first start: the
// program is not there, or its log file cannot be written.
func Start(spec Spec) (*Process, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	out, err := newOutput(spec.LogFile, spec.LastLines)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{
		spec: spec, out: out,
		stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
	}
	first := make(chan error, 1)
	go p.supervise(first)
	if err := <-first; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return p, nil
}

// Stop sends SIGTERM, waits up to the Spec's StopTimeout or the end of ctx, then kills the whole process group. When it
// returns, the process and its descendants in that group are gone. The error is ErrKilled where force was needed.
func (p *Process) Stop(ctx context.Context) error {
	p.stopOnce.Do(func() { close(p.stop) })
	select {
	case <-p.done:
	case <-ctx.Done():
		p.killOnce.Do(func() { close(p.kill) })
		<-p.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return fmt.Errorf("stop %s: %w", p.spec.Name, ErrKilled)
	}
	return nil
}

// Done is closed when the process has ended and will not be restarted.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says why the process ended by itself for good: nil while it runs, after Stop, and after exit status 0.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// PID is the id of the running child, 0 while there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Restarts counts the starts after the first.
func (p *Process) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// LastLines returns the end of the output so far, oldest first.
func (p *Process) LastLines() []string { return p.out.lastLines() }

// supervise runs the child again and again. It stays on one thread, because on Linux the signal that a child gets at
// its parent's death is bound to the thread that made it.
func (p *Process) supervise(first chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	defer p.out.close()

	var wait time.Duration
	for attempt := 0; ; attempt++ {
		begin := time.Now()
		c, err := p.launch()
		if attempt == 0 {
			first <- err
			if err != nil {
				return
			}
		}
		if err == nil {
			err = p.watch(c)
		}
		if p.stopping() {
			return
		}
		uptime := time.Since(begin)
		wait = p.spec.backoff(wait, uptime)
		p.report(c, err, uptime, wait)
		if p.spec.Restart == Never {
			p.setErr(err)
			return
		}
		if !p.pause(wait) {
			return
		}
	}
}

// report tells OnExit of an end that nobody asked for.
func (p *Process) report(c *child, err error, uptime, wait time.Duration) {
	if p.spec.OnExit == nil {
		return
	}
	e := Exit{Name: p.spec.Name, Err: err, Uptime: uptime, LastLines: p.out.lastLines(), RestartIn: wait}
	if c != nil {
		e.PID = c.cmd.Process.Pid
	}
	if p.spec.Restart == Never {
		e.RestartIn = -1
	}
	p.spec.OnExit(e)
}

// pause waits before a restart; false means that Stop came first.
func (p *Process) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.stop:
		return false
	case <-timer.C:
		p.mu.Lock()
		p.restarts++
		p.mu.Unlock()
		return true
	}
}

func (p *Process) stopping() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

func (p *Process) setErr(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = fmt.Errorf("%s ended: %w", p.spec.Name, err)
	}
}

func (p *Process) setPID(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *Process) launch() (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	//nolint:noctx // running the given program is the purpose; its life is ended by Stop, not by a context
	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Env = append(append(os.Environ(), ParentPipeEnv+"=stdin"), p.spec.Env...)
	cmd.Dir = p.spec.Dir
	cmd.Stdin = r
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr = sysProcAttr()
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	p.setPID(cmd.Process.Pid)
	return &child{cmd: cmd, pipe: w}, nil
}

// watch waits for the end of c, stopping it when asked, and leaves nothing of its group behind.
func (p *Process) watch(c *child) error {
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.stopWhenAsked(c, ended)
	}()
	zombie := awaitZombie(c.cmd.Process.Pid)
	c.mu.Lock()
	if zombie {
		// The leader still holds its pid, so the group is certainly ours.
		killGroup(c.cmd.Process.Pid)
	}
	c.ended = zombie
	c.mu.Unlock()
	err := c.cmd.Wait()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	close(ended)
	<-watched
	c.pipe.Close()
	p.setPID(0)
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

// stopWhenAsked sends SIGTERM on Stop, SIGKILL to the group after the bound.
func (p *Process) stopWhenAsked(c *child, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-p.stop:
	}
	c.signal(func(pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) })
	timer := time.NewTimer(p.spec.StopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return
	case <-timer.C:
	case <-p.kill:
	}
	c.signal(func(pid int) {
		p.mu.Lock()
		p.killed = true
		p.mu.Unlock()
		killGroup(pid)
	})
}

// signal calls send while the pid is surely that of the child.
func (c *child) signal(send func(pid int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		send(c.cmd.Process.Pid)
	}
}

// killGroup ends every process of the group that pid leads.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
