// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/testbed/realnode/nodespec"
)

const (
	// pollInterval is how often a state is looked at that nobody announces.
	pollInterval = 10 * time.Millisecond
	// interfaceBound and socketBound are many times what it takes, on an emulated machine too.
	interfaceBound = 30 * time.Second
	socketBound    = 90 * time.Second
	// restartPause is the time between the end of a program and its next start, maxRestarts how often there is one.
	restartPause = 200 * time.Millisecond
	maxRestarts  = 100
)

// node is the node in the making.
type node struct {
	spec    nodespec.Node
	reports *os.File
	logs    []*os.File
	begin   time.Time
	running map[int]nodespec.Step // programs that have not ended, by process id
	// restarts of programs since the node was up.
	restarts int
}

// ending is a child that has been reaped.
type ending struct {
	pid    int
	status unix.WaitStatus
}

// report sends one line. Who listens may be gone; then the node is about to be, too.
func (n *node) report(step string, failure error) {
	r := nodespec.Report{Step: step, Took: time.Since(n.begin)}
	if failure != nil {
		r.Error = failure.Error()
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, _ = n.reports.Write(append(line, '\n'))
	}
}

// fail reports and returns what ended the node.
func (n *node) fail(step string, err error) error {
	n.report(step, err)
	return fmt.Errorf("%s: %w", step, err)
}

// run makes the node from its root file system on, and stays until one of its programs ends.
func (n *node) run() error {
	if err := n.furnish(); err != nil {
		return n.fail(nodespec.Mounted, err)
	}
	n.report(nodespec.Mounted, nil)
	n.running = map[int]nodespec.Step{}
	for i, step := range n.spec.Steps {
		if err := n.do(i, step); err != nil {
			return n.fail(step.Name, err)
		}
		if !step.Beside {
			n.report(step.Name, nil)
		}
	}
	if err := n.await(func(s nodespec.Step) bool { return s.Beside }); err != nil {
		return n.fail(nodespec.Up, err)
	}
	n.report(nodespec.Up, nil)
	for {
		e, err := reap()
		if err == nil {
			err = n.again(e)
		}
		if err != nil {
			return n.fail("stay", err)
		}
	}
}

// again takes the end of a child into account while the node is up: a program that is to be started again is.
func (n *node) again(e ending) error {
	step, ok := n.running[e.pid]
	if !ok || !step.Again || n.restarts >= maxRestarts {
		return n.note(e)
	}
	delete(n.running, e.pid)
	n.restarts++
	time.Sleep(restartPause)
	return n.start(slices.IndexFunc(n.spec.Steps, func(s nodespec.Step) bool { return s.Name == step.Name }), step)
}

// furnish writes the files, sets the name and brings up the network.
func (n *node) furnish() error {
	for _, name := range sorted(n.spec.Files) {
		f := n.spec.Files[name]
		mode := fs.FileMode(f.Mode)
		if mode == 0 {
			mode = 0o644
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(name, []byte(f.Content), mode); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	// Volumes that pods mount have to be seen by the kubelet, and the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	if err := unix.Sethostname([]byte(n.spec.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := connect(n.spec.Address, n.spec.Gateway); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	// This network namespace's own switch.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}

// do runs one step, up to where the next begins.
func (n *node) do(i int, step nodespec.Step) error {
	if err := n.start(i, step); err != nil {
		return err
	}
	if !step.Stays && !step.Beside {
		return n.await(func(s nodespec.Step) bool { return s.Name == step.Name })
	}
	if step.Socket == "" {
		return nil
	}
	return n.awaitSocket(step.Socket)
}

// start starts the program of a step.
func (n *node) start(i int, step nodespec.Step) error {
	path, err := exec.LookPath(step.Args[0])
	if err != nil {
		return err
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer nothing.Close()
	process, err := os.StartProcess(path, step.Args, &os.ProcAttr{
		Env:   append(os.Environ(), step.Env...),
		Files: []*os.File{nothing, n.logs[i], n.logs[i]},
	})
	if err != nil {
		return err
	}
	n.running[process.Pid] = step
	return nil
}

// await reaps children until none runs that is wanted to end.
func (n *node) await(wanted func(nodespec.Step) bool) error {
	for {
		waiting := false
		for _, step := range n.running {
			waiting = waiting || wanted(step)
		}
		if !waiting {
			return nil
		}
		e, err := reap()
		if err == nil {
			err = n.note(e)
		}
		if err != nil {
			return err
		}
	}
}

// note takes the end of a child into account. It is an error if that was to stay, or failed. What the node's programs left
// behind is none of the steps and of no interest.
func (n *node) note(e ending) error {
	step, ok := n.running[e.pid]
	if !ok {
		return nil
	}
	delete(n.running, e.pid)
	if step.Stays || !e.status.Exited() || e.status.ExitStatus() != 0 {
		return fmt.Errorf("%s ended: %s", step.Name, describe(e.status))
	}
	if step.Beside {
		n.report(step.Name, nil)
	}
	return nil
}

// awaitSocket waits until path accepts connections, while all programs run.
func (n *node) awaitSocket(path string) error {
	deadline := time.Now().Add(socketBound)
	for {
		connection, err := net.Dial("unix", path) //nolint:noctx // a local socket answers at once or not at all
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("does not serve within %s: %w", socketBound, err)
		}
		var status unix.WaitStatus
		if pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil); err == nil && pid > 0 {
			if err := n.note(ending{pid: pid, status: status}); err != nil {
				return err
			}
		}
		time.Sleep(pollInterval)
	}
}

// reap waits for the next child to end. A node has always some, the kubelet at least.
func reap() (ending, error) {
	for {
		var e ending
		var err error
		e.pid, err = unix.Wait4(-1, &e.status, 0, nil)
		if err == nil {
			return e, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return e, fmt.Errorf("wait for children: %w", err)
		}
	}
}

func describe(s unix.WaitStatus) string {
	if s.Signaled() {
		return "signal " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
