// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"crane.io/crane/internal/testbed/process"
)

// Component names a role of the control plane, which is also the subcommand of the controlplane binary.
type Component string

// The components there are.
const (
	APIServer         Component = "apiserver"
	ControllerManager Component = "controller-manager"
	Scheduler         Component = "scheduler"
)

// BinaryEnv names the environment variable that holds the path of a built controlplane binary.
const BinaryEnv = "CRANE_CONTROLPLANE"

// DefaultReadyTimeout bounds the wait for a component to serve. It takes about 3 s; the bound is for a loaded machine.
const DefaultReadyTimeout = 2 * time.Minute

// Options say what to run. The zero value runs an API server alone, in a temporary directory, for as long as the caller
// lives.
type Options struct {
	// Dir holds the state: etcd's data, certificates, kubeconfigs, logs. What is there is used again, so that a cluster
	// survives a restart. Empty means a temporary directory that Stop removes.
	Dir string
	// Binary is the path of the controlplane binary; empty means $CRANE_CONTROLPLANE, else the file "controlplane" beside
	// the running executable.
	Binary string
	// Components to run beside the API server, which always runs.
	Components []Component
	// APIServerPort is a port of 127.0.0.1; 0 means the one of the last run in Dir if it is free, else any free one.
	APIServerPort int
	// ExtraArgs are added to a component's own flags and win over them where a flag takes one value.
	ExtraArgs map[Component][]string
	// Restart makes a component that ends by itself start again, with back-off.
	Restart bool
	// OnExit is told of each component that ended without having been stopped.
	OnExit func(process.Exit)
	// Log receives the progress and the reports, one line or more each; nil means none.
	Log io.Writer
	// ReadyTimeout bounds the wait for each component to serve; 0 means DefaultReadyTimeout.
	ReadyTimeout time.Duration
}

func (o Options) complete() (Options, error) {
	for _, c := range o.Components {
		if !slices.Contains([]Component{APIServer, ControllerManager, Scheduler}, c) {
			return o, fmt.Errorf("control plane: unknown component %q, want %s, %s or %s", c, APIServer, ControllerManager, Scheduler)
		}
	}
	for c := range o.ExtraArgs {
		if c != APIServer && !slices.Contains(o.Components, c) {
			return o, fmt.Errorf("control plane: extra arguments for component %q, which is not to run", c)
		}
	}
	if o.APIServerPort < 0 || o.APIServerPort > 65535 {
		return o, fmt.Errorf("control plane: API server port %d, want 0 to 65535", o.APIServerPort)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.ReadyTimeout <= 0 {
		o.ReadyTimeout = DefaultReadyTimeout
	}
	var err error
	o.Binary, err = findBinary(o.Binary)
	return o, err
}

// has reports whether component c runs.
func (o Options) has(c Component) bool { return c == APIServer || slices.Contains(o.Components, c) }

// findBinary returns the absolute path of the controlplane binary.
func findBinary(path string) (string, error) {
	if path == "" {
		path = os.Getenv(BinaryEnv)
	}
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the controlplane binary: %w", err)
		}
		path = filepath.Join(filepath.Dir(self), "controlplane")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the controlplane binary: %w", err)
	}
	if info, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the controlplane binary (set %s, or build ./cmd/controlplane): %w", BinaryEnv, err)
	} else if info.IsDir() {
		return "", fmt.Errorf("the controlplane binary %s is a directory", path)
	}
	return path, nil
}
