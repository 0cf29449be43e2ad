// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"crane.io/crane/internal/testbed/process"
)

// Component is a component of the control plane and the subcommand of the controlplane binary that runs it.
type Component string

// Components of the control plane.
const (
	APIServer         Component = "apiserver"
	ControllerManager Component = "controller-manager"
	Scheduler         Component = "scheduler"
)

// BinaryEnv is the environment variable with the path of the controlplane binary.
const BinaryEnv = "CRANE_CONTROLPLANE"

// DefaultReadyTimeout bounds the wait for a component to become ready. It takes about 3 s on an idle machine.
const DefaultReadyTimeout = 2 * time.Minute

// Options configures a control plane. The zero value runs only an API server, in a temporary directory, for as long as
// the calling process lives.
type Options struct {
	// Dir contains the state: etcd's data, certificates, kubeconfigs, logs. Existing state is reused, so a cluster
	// survives a restart. Empty means a temporary directory that Stop removes.
	Dir string
	// Binary is the path of the controlplane binary; empty means $CRANE_CONTROLPLANE, else the file "controlplane" beside
	// the running executable.
	Binary string
	// Components lists the components to run in addition to the API server.
	Components []Component
	// APIServerPort is a port of 127.0.0.1; 0 selects the port of the last run in Dir if it is free, otherwise any free
	// one.
	APIServerPort int
	// ExtraArgs are appended to a component's arguments and override flags that take one value.
	ExtraArgs map[Component][]string
	// Restart restarts a component that exits unrequested, with backoff.
	Restart bool
	// OnExit is called for each component that exited without being stopped.
	OnExit func(process.Exit)
	// Log receives progress messages, each of one or more lines; nil discards them.
	Log io.Writer
	// ReadyTimeout bounds the wait for each component to become ready; 0 means DefaultReadyTimeout.
	ReadyTimeout time.Duration
}

func (o Options) complete() (Options, error) {
	for _, c := range o.Components {
		if !slices.Contains([]Component{APIServer, ControllerManager, Scheduler}, c) {
			return o, fmt.Errorf("control plane: unknown component %q, want %s, %s or %s", c, APIServer, ControllerManager, Scheduler)
		}
	}

	// Arguments of a component that does not run would be ignored silently.
	for c := range o.ExtraArgs {
		if c != APIServer && !slices.Contains(o.Components, c) {
			return o, fmt.Errorf("control plane: extra arguments for component %q, which is not listed in Components", c)
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
			return "", fmt.Errorf("finding the controlplane binary: %w", err)
		}

		path = filepath.Join(filepath.Dir(self), "controlplane")
	}

	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the controlplane binary: %w", err)
	}

	// A missing binary is reported here, not at the start of the first process.
	if info, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("finding the controlplane binary (set %s, or build ./cmd/controlplane): %w", BinaryEnv, err)
	} else if info.IsDir() {
		return "", fmt.Errorf("the controlplane binary %s is a directory", path)
	}

	return path, nil
}

// layout names the files under a control plane's directory.
type layout struct{ root string }

func (l layout) pki(name string) string { return filepath.Join(l.root, "pki", name) }
func (l layout) data() string           { return filepath.Join(l.root, "data") }
func (l layout) log(c Component) string { return filepath.Join(l.root, "logs", string(c)+".log") }
func (l layout) kubeconfig(name string) string {
	return filepath.Join(l.root, "kubeconfigs", name+".kubeconfig")
}
func (l layout) portFile() string { return filepath.Join(l.root, "apiserver.port") }

// create creates the directories, readable by their owner only because they contain keys.
func (l layout) create() error {
	for _, dir := range []string{"pki", "data", "logs", "kubeconfigs"} {
		if err := os.MkdirAll(filepath.Join(l.root, dir), 0o700); err != nil {
			return fmt.Errorf("creating the state directory: %w", err)
		}
	}

	return nil
}

// lock locks the directory for this process until the returned file is closed.
func (l layout) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(l.root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking state directory: %w", err)
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("state directory %s is in use by another control plane", l.root)
		}

		return nil, fmt.Errorf("locking state directory %s: %w", l.root, err)
	}

	return f, nil
}

// lastPort returns the port of the previous run, 0 if there was none.
func (l layout) lastPort() int {
	data, err := os.ReadFile(l.portFile())
	if err != nil {
		return 0
	}

	port, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || port <= 0 || port > 65535 {
		return 0
	}

	return port
}

func (l layout) savePort(port int) error {
	if err := os.WriteFile(l.portFile(), []byte(strconv.Itoa(port)+"\n"), 0o600); err != nil {
		return fmt.Errorf("saving the port: %w", err)
	}

	return nil
}
