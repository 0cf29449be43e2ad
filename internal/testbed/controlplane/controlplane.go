// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"crane.io/crane/internal/testbed/loopback"
	"crane.io/crane/internal/testbed/process"
)

// ControlPlane is a running control plane. Its methods may be called from any goroutine.
type ControlPlane struct {
	*access
	options   Options
	temporary bool
	lock      *os.File
	heldPort  *loopback.Port // reserved for the API server; nil if Options.APIServerPort is set

	// operations serializes starts and stops; mu guards processes only.
	operations sync.Mutex
	mu         sync.Mutex
	processes  map[Component]*process.Process
}

// Start runs a control plane and returns when it serves: the API server is ready, the system namespaces exist and, with
// the controller manager, pods can be created in namespace default. After an error nothing is left running. Canceling
// ctx aborts the start; a started control plane runs until Stop.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}

	c := &ControlPlane{access: &access{}, options: o, processes: map[Component]*process.Process{}}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("control plane: %w", err), c.release())
	}

	if err := c.startAll(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("control plane: %w", err), c.Stop(ctx))
	}

	return c, nil
}

// prepare creates and locks the state directory and creates the identities.
func (c *ControlPlane) prepare() error {
	root := c.options.Dir
	if root == "" {
		dir, err := os.MkdirTemp("", "crane-controlplane-")
		if err != nil {
			return err
		}

		root = dir
		c.temporary = true
	}

	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}

	// The lock comes before the identities, which another control plane may be writing.
	c.layout = layout{root: root}
	if err := errors.Join(c.layout.create(), c.layout.writeAuditPolicy()); err != nil {
		return err
	}

	if c.lock, err = c.layout.lock(); err != nil {
		return err
	}

	return c.makeIdentities()
}

func (c *ControlPlane) startAll(ctx context.Context) error {
	c.operations.Lock()
	defer c.operations.Unlock()

	if err := c.startFirstAPIServer(ctx); err != nil {
		return err
	}

	var exits []<-chan process.Exit
	for _, component := range []Component{ControllerManager, Scheduler} {
		if !c.options.has(component) {
			continue
		}

		exit, err := c.launch(component)
		if err != nil {
			return err
		}

		exits = append(exits, exit)
	}

	return c.awaitUsable(ctx, exits)
}

// Stop stops every component, the API server last, and removes a temporary directory. A component that does not exit in
// time or before ctx ends is killed; nothing runs when Stop returns. It is idempotent.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.operations.Lock()
	defer c.operations.Unlock()

	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, component := range []Component{ControllerManager, Scheduler} {
		wg.Go(func() { errs[i] = c.stop(ctx, component) })
	}

	wg.Wait()
	return errors.Join(errors.Join(errs...), c.stop(ctx, APIServer), c.release())
}

// release unlocks the state directory, releases the port and removes a temporary directory.
func (c *ControlPlane) release() error {
	if c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}

	err := c.releasePort()
	if c.temporary {
		err = errors.Join(err, os.RemoveAll(c.layout.root))
	}

	return err
}

// StopComponent stops one component and returns after its exit; its data stays. Stopping a component that does not run
// is not an error. The error is process.ErrKilled if the component had to be killed.
func (c *ControlPlane) StopComponent(ctx context.Context, component Component) error {
	c.operations.Lock()
	defer c.operations.Unlock()

	return c.stop(ctx, component)
}

// StartComponent starts a component that StopComponent has stopped, the API server on its previous port, and returns
// when the API server serves or the other component's process has started.
func (c *ControlPlane) StartComponent(ctx context.Context, component Component) error {
	c.operations.Lock()
	defer c.operations.Unlock()

	if !c.options.has(component) {
		return fmt.Errorf("starting %s: not a component of this control plane", component)
	}

	if p := c.process(component); p != nil && p.PID() != 0 {
		return fmt.Errorf("starting %s: runs already", component)
	}

	exit, err := c.launch(component)
	if err != nil || component != APIServer {
		return err
	}

	if err := c.awaitReady(ctx, exit); err != nil {
		return errors.Join(err, c.stop(ctx, component))
	}

	return nil
}

// Dir returns the state directory. It contains logs/COMPONENT.log.
func (c *ControlPlane) Dir() string { return c.layout.root }

// PID returns the process ID of a component, 0 while it does not run.
func (c *ControlPlane) PID(component Component) int {
	if p := c.process(component); p != nil {
		return p.PID()
	}

	return 0
}

// LastLines returns the last lines of a component's output, oldest first.
func (c *ControlPlane) LastLines(component Component) []string {
	if p := c.process(component); p != nil {
		return p.LastLines()
	}

	return nil
}

func (c *ControlPlane) process(component Component) *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.processes[component]
}

func (c *ControlPlane) stop(ctx context.Context, component Component) error {
	p := c.process(component)
	if p == nil {
		return nil
	}

	return p.Stop(ctx)
}

// launch starts the process of a component. The returned channel receives its first unrequested exit.
func (c *ControlPlane) launch(component Component) (<-chan process.Exit, error) {
	exits := make(chan process.Exit, 1)
	spec := process.Spec{
		Name:    string(component),
		Path:    c.options.Binary,
		Args:    arguments{c.options, c.layout, c.port}.args(component),
		Env:     []string{"GOGC=" + gcPercent},
		LogFile: c.layout.log(component),
		// Only the first exit is of interest; later ones must not block.
		OnExit: func(e process.Exit) {
			select {
			case exits <- e:
			default:
			}
			c.report(e)
		},
	}

	if c.options.Restart {
		spec.Restart = process.Always
	}

	p, err := process.Start(spec)
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.processes[component] = p
	return exits, nil
}

func (c *ControlPlane) report(e process.Exit) {
	c.logf("%s", e)
	if c.options.OnExit != nil {
		c.options.OnExit(e)
	}
}

// logf writes one progress line. Write errors of the caller's writer are ignored.
func (c *ControlPlane) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.options.Log, "control plane: "+format+"\n", args...)
}

// Running returns the components that have a process, sorted by name.
func (c *ControlPlane) Running() []Component {
	c.mu.Lock()
	defer c.mu.Unlock()

	var list []Component
	for component, p := range c.processes {
		if p.PID() != 0 {
			list = append(list, component)
		}
	}

	slices.Sort(list)
	return list
}
