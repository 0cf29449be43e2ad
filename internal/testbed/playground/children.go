// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"path/filepath"

	"crane.io/crane/internal/testbed/process"
)

// childSpec returns the child process of a binary with flags set; it restarts on exit.
func (p *playground) childSpec(b binarySpec, flags map[string]string) process.Spec {
	return process.Spec{
		Name: b.name, Path: filepath.Join(p.options.BinDir, b.name), Args: b.argsWith(flags), Env: b.env,
		LogFile: filepath.Join(p.dir, "logs", b.name+".log"), Restart: process.Always, OnExit: p.reportExit,
	}
}

// startChild starts a child process, which the playground stops at its end and scenarios may stop and start again.
func (p *playground) startChild(spec process.Spec) error {
	p.onStop(func(ctx context.Context) error { return p.stopChild(ctx, spec.Name) })
	return p.launch(spec)
}

func (p *playground) launch(spec process.Spec) error {
	started, err := process.Start(spec)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.children[spec.Name] = child{spec: spec, process: started}
	return nil
}

// child is a child process and its specification.
type child struct {
	spec    process.Spec
	process *process.Process
}

// childOf returns the child process of a component, or false if it was never started.
func (p *playground) childOf(component string) (child, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.children[component]
	return c, ok
}

// stopChild stops a child process. A component that was never started is not an error.
func (p *playground) stopChild(ctx context.Context, component string) error {
	c, ok := p.childOf(component)
	if !ok {
		return nil
	}
	return c.process.Stop(ctx)
}
