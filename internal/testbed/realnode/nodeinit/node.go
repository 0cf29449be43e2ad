// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"encoding/binary"
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
	"unsafe"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/testbed/realnode/nodespec"
)

const (
	// pollInterval is the interval between reads of states without notifications.
	pollInterval = 10 * time.Millisecond
	// interfaceBound and socketBound bound waits; each is many times the usual duration, also on an emulated machine.
	interfaceBound = 30 * time.Second
	socketBound    = 90 * time.Second
	// restartPause is the time between the exit of a program and its restart, maxRestarts bounds the restarts of all
	// programs.
	restartPause = 200 * time.Millisecond
	maxRestarts  = 100
)

// node is the state of the node.
type node struct {
	spec    nodespec.Node
	reports *os.File
	logs    []*os.File
	begin   time.Time
	running map[int]nodespec.Step // running programs by process ID
	// restarts counts the restarts of programs since the node was up.
	restarts int
}

// exit is the exit of a reaped child.
type exit struct {
	pid    int
	status unix.WaitStatus
}

// report sends one report. Write errors are ignored: the node ends with the reader of its reports.
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

// fail reports and returns the error that ends the node.
func (n *node) fail(step string, err error) error {
	n.report(step, err)
	return fmt.Errorf("%s: %w", step, err)
}

// run sets up the node in its root file system and runs until one of its daemons ends.
func (n *node) run() error {
	if err := n.prepare(); err != nil {
		return n.fail(nodespec.Mounted, err)
	}

	n.report(nodespec.Mounted, nil)
	n.running = map[int]nodespec.Step{}
	for i, step := range n.spec.Steps {
		if err := n.runStep(i, step); err != nil {
			return n.fail(step.Name, err)
		}

		if !step.Background {
			n.report(step.Name, nil)
		}
	}

	// Steps in the background, such as the import of images, must end before the node is up.
	if err := n.await(func(s nodespec.Step) bool { return s.Background }); err != nil {
		return n.fail(nodespec.Up, err)
	}

	n.report(nodespec.Up, nil)
	for {
		e, err := reap()
		if err == nil {
			err = n.restartOrRecord(e)
		}

		if err != nil {
			return n.fail("stay", err)
		}
	}
}

// restartOrRecord handles the exit of a child while the node is up: programs with Restart are restarted.
func (n *node) restartOrRecord(e exit) error {
	step, ok := n.running[e.pid]
	if !ok || !step.Restart || n.restarts >= maxRestarts {
		return n.recordExit(e)
	}

	delete(n.running, e.pid)
	n.restarts++
	time.Sleep(restartPause)

	return n.start(slices.IndexFunc(n.spec.Steps, func(s nodespec.Step) bool { return s.Name == step.Name }), step)
}

// prepare writes the files, sets the host name and configures the network.
func (n *node) prepare() error {
	for _, name := range sorted(n.spec.Files) {
		f := n.spec.Files[name]
		mode := fs.FileMode(f.Mode)
		if mode == 0 {
			mode = 0o644
		}

		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}

		if err := os.WriteFile(name, []byte(f.Content), mode); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}

	// Mounts of pods must propagate to the kubelet and vice versa.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}

	if err := unix.Sethostname([]byte(n.spec.Name)); err != nil {
		return fmt.Errorf("setting host name: %w", err)
	}

	if err := configureNetwork(n.spec.Address, n.spec.Gateway); err != nil {
		return fmt.Errorf("configuring the network: %w", err)
	}

	// The setting is specific to this network namespace.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("configuring the network: %w", err)
	}

	return nil
}

// runStep runs one step until the next one may start.
func (n *node) runStep(i int, step nodespec.Step) error {
	if err := n.start(i, step); err != nil {
		return err
	}

	if !step.Daemon && !step.Background {
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

// await reaps children until no running step matches wanted.
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
			err = n.recordExit(e)
		}

		if err != nil {
			return err
		}
	}
}

// recordExit records the exit of a child. It returns an error if the child was a daemon or failed. Orphans are ignored.
func (n *node) recordExit(e exit) error {
	step, ok := n.running[e.pid]
	if !ok {
		return nil
	}

	delete(n.running, e.pid)
	if step.Daemon || !e.status.Exited() || e.status.ExitStatus() != 0 {
		return fmt.Errorf("%s ended: %s", step.Name, describe(e.status))
	}

	if step.Background {
		n.report(step.Name, nil)
	}

	return nil
}

// awaitSocket waits until path accepts connections and records exits in the meantime.
func (n *node) awaitSocket(path string) error {
	deadline := time.Now().Add(socketBound)
	for {
		connection, err := net.Dial("unix", path) //nolint:noctx // dialing a local socket does not block
		if err == nil {
			return connection.Close()
		}

		if time.Now().After(deadline) {
			return fmt.Errorf("does not serve within %s: %w", socketBound, err)
		}

		var status unix.WaitStatus
		if pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil); err == nil && pid > 0 {
			if err := n.recordExit(exit{pid: pid, status: status}); err != nil {
				return err
			}
		}

		time.Sleep(pollInterval)
	}
}

// reap waits for the next exit of a child. A node always has children, at least the kubelet.
func reap() (exit, error) {
	for {
		var e exit
		var err error

		e.pid, err = unix.Wait4(-1, &e.status, 0, nil)
		if err == nil {
			return e, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return e, fmt.Errorf("waiting for children: %w", err)
		}
	}
}

func describe(s unix.WaitStatus) string {
	if s.Signaled() {
		return "signal " + s.Signal().String()
	}

	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// swapFile is the path of a virtual machine's swap file.
const swapFile = "/var/swap"

// swapOn creates and enables swap of that size in MiB; 0 does nothing.
func swapOn(mib int) error {
	if mib == 0 {
		return nil
	}

	f, err := os.OpenFile(swapFile, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("enabling swap: %w", err)
	}

	// A swap file must not have holes.
	size := int64(mib) << 20
	_, err = f.WriteAt(swapHeader(size, os.Getpagesize()), 0)
	if err := errors.Join(err, unix.Fallocate(int(f.Fd()), 0, 0, size), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("enabling swap: %w", err)
	}

	path, err := unix.BytePtrFromString(swapFile)
	if err != nil {
		return fmt.Errorf("enabling swap: %w", err)
	}

	if _, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(path)), 0, 0); errno != 0 {
		return fmt.Errorf("enabling swap: %w", errno)
	}

	return nil
}

// swapHeader returns the first page of a swap area, as mkswap(8) writes it: the kernel's union swap_header, version 1.
func swapHeader(size int64, page int) []byte {
	const (
		info  = 1024
		magic = "SWAPSPACE2"
	)

	b := make([]byte, page)
	binary.NativeEndian.PutUint32(b[info:], 1)
	binary.NativeEndian.PutUint32(b[info+4:], uint32(size/int64(page)-1))
	copy(b[page-len(magic):], magic)

	return b
}
