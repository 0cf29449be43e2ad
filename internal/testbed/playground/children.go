// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"path/filepath"
	"sync"

	"crane.io/crane/internal/testbed/process"
)

// childSpec returns the child process of a binary with flags set; it restarts on exit.
func (p *playground) childSpec(b binarySpec, flags map[string]string) process.Spec {
	return process.Spec{
		Name:    b.name,
		Path:    filepath.Join(p.options.BinDir, b.name),
		Args:    b.argsWith(flags),
		Env:     b.env,
		LogFile: filepath.Join(p.dir, "logs", b.name+".log"),
		Restart: process.Always,
		OnExit:  p.reportExit,
	}
}

// startChild starts a child process, which the playground stops at its end and scenarios may stop and start again.
func (p *playground) startChild(spec process.Spec) error {
	p.onStop(func(ctx context.Context) error { return p.stopChild(ctx, spec.Name) })
	return p.launch(spec)
}

// children are the child processes of a playground.
type children struct {
	mu sync.Mutex
	// byComponent has the processes that were started at least once.
	byComponent map[string]child
}

func (c *children) launch(spec process.Spec) error {
	started, err := process.Start(spec)
	if err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.byComponent[spec.Name] = child{spec: spec, process: started}
	return nil
}

// child is a child process and its specification.
type child struct {
	spec    process.Spec
	process *process.Process
}

// childOf returns the child process of a component, or false if it was never started.
func (c *children) childOf(component string) (child, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	found, ok := c.byComponent[component]
	return found, ok
}

// stopChild stops a child process. A component that was never started is not an error.
func (c *children) stopChild(ctx context.Context, component string) error {
	found, ok := c.childOf(component)
	if !ok {
		return nil
	}

	return found.process.Stop(ctx)
}
