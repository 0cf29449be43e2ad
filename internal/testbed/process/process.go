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

// ErrKilled is returned by Stop when the process had to be killed because it did not exit in time.
var ErrKilled = errors.New("killed because it did not exit in time")

// pipeDelay bounds the wait for output after the process has exited.
const pipeDelay = 2 * time.Second

// Process is a child process that may be restarted. Its methods may be called from any goroutine.
type Process struct {
	spec Spec
	out  *output

	stopOnce sync.Once
	stop     chan struct{} // closed by Stop: no restarts, SIGTERM
	killOnce sync.Once
	kill     chan struct{} // closed when Stop's context ends: SIGKILL now
	done     chan struct{} // closed after the last exit

	mu       sync.Mutex
	pid      int
	restarts int
	killed   bool
	err      error
}

// child is one run of the process.
type child struct {
	cmd  *exec.Cmd
	pipe *os.File // write end of its stdin: it reads EOF when this process exits

	mu    sync.Mutex
	ended bool // the pid may have been reused
}

// Start runs spec's program and supervises it until its last exit. It returns an error if the first start fails: the
// program does not exist, or its log file cannot be written.
func Start(spec Spec) (*Process, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}

	out, err := newOutput(spec.LogFile, spec.LastLines)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}

	p := &Process{
		spec: spec,
		out:  out,
		stop: make(chan struct{}),
		kill: make(chan struct{}),
		done: make(chan struct{}),
	}

	// The first start fails synchronously; later ones are retried with backoff.
	first := make(chan error, 1)
	go p.supervise(first)

	if err := <-first; err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}

	return p, nil
}

// Stop sends SIGTERM, waits up to the Spec's StopTimeout or the end of ctx, then kills the process group. When it
// returns, the process and its descendants in that group are gone. The error is ErrKilled if they had to be killed.
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
		return fmt.Errorf("stopping %s: %w", p.spec.Name, ErrKilled)
	}

	return nil
}

// Done returns a channel that is closed when the process has exited and will not be restarted.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error of the last exit: nil while the process runs, after Stop, and after exit status 0.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.err
}

// PID returns the ID of the running process, 0 if there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.pid
}

// Restarts returns the number of starts after the first.
func (p *Process) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.restarts
}

// LastLines returns the last lines of output, oldest first.
func (p *Process) LastLines() []string { return p.out.lastLines() }

// supervise runs the child and restarts it. It stays on one thread, because on Linux the parent death signal is bound
// to the thread that created the child.
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

		// The exit was not requested: report it and, depending on the policy, restart the program.
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

// report calls OnExit for an unrequested exit.
func (p *Process) report(c *child, err error, uptime, wait time.Duration) {
	if p.spec.OnExit == nil {
		return
	}

	e := Exit{
		Name:      p.spec.Name,
		Err:       err,
		Uptime:    uptime,
		LastLines: p.out.lastLines(),
		RestartIn: wait,
	}

	if c != nil {
		e.PID = c.cmd.Process.Pid
	}
	if p.spec.Restart == Never {
		e.RestartIn = -1
	}

	p.spec.OnExit(e)
}

// pause waits before a restart. It returns false if Stop was called.
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
		return nil, fmt.Errorf("creating pipe: %w", err)
	}
	defer r.Close()

	//nolint:noctx // Stop ends the process, not a context
	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Env = append(append(os.Environ(), ParentPipeEnv+"=stdin"), p.spec.Env...)
	cmd.Dir = p.spec.Dir
	cmd.Stdin = r
	cmd.Stdout = p.out
	cmd.Stderr = p.out

	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr = sysProcAttr()
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}

	p.setPID(cmd.Process.Pid)
	return &child{cmd: cmd, pipe: w}, nil
}

// watch waits for the exit of c, stops it on request, and kills what is left of its process group.
func (p *Process) watch(c *child) error {
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)

		p.stopOnRequest(c, ended)
	}()

	zombie := awaitZombie(c.cmd.Process.Pid)
	c.mu.Lock()

	if zombie {
		// The leader has not been reaped, so its pid, the group ID, cannot have been reused.
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

// stopOnRequest sends SIGTERM on Stop, and SIGKILL to the process group after StopTimeout.
func (p *Process) stopOnRequest(c *child, ended <-chan struct{}) {
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

// signal calls send if the pid still belongs to the child.
func (c *child) signal(send func(pid int)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.ended {
		send(c.cmd.Process.Pid)
	}
}

// killGroup kills every process of the group that pid leads.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
