// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespacenode runs a real node in namespaces on this machine's kernel, with its speed and its cgroup version.
// It starts the node's first process (package nodeinit), assigns it cgroups and a network, and kills all of it at the
// end.
package namespacenode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/testbed/realnode/hostcgroup"
	"crane.io/crane/internal/testbed/realnode/nodespec"
	"crane.io/crane/internal/testbed/realnode/progress"
)

// removeBound bounds the removal of the node's cgroups once it has ended.
const removeBound = 10 * time.Second

// Options configures a node.
type Options struct {
	Node nodespec.Node
	// Kit is the path of the nodekit binary.
	Kit string
	// Group is the parent of the node's cgroup.
	Group hostcgroup.Group
	// LogDir receives one log file per step.
	LogDir string
	// Attach connects the network namespace of process pid.
	Attach func(ctx context.Context, pid int) error
}

// Node is a running node.
type Node struct {
	pid   int
	group hostcgroup.Group
	done  chan struct{}
	err   error // valid after done
}

// Start starts a node and returns when it is up or has failed. ctx bounds only the start. report, if not nil, is called
// for each step.
func Start(ctx context.Context, o Options, report func(nodespec.Report)) (*Node, error) {
	group, err := o.Group.Child(o.Node.Name)
	if err != nil {
		return nil, err
	}

	n := &Node{group: group, done: make(chan struct{})}
	reports, err := n.launch(ctx, o)
	if err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	defer reports.Close()

	if err := progress.NewReader(reports, report).Await(ctx, nodespec.Up); err != nil {
		return nil, errors.Join(fmt.Errorf("node: %w", err), n.Stop())
	}

	return n, nil
}

// launch starts the first process and passes it its cgroups, network and configuration.
func (n *Node) launch(ctx context.Context, o Options) (reports *os.File, err error) {
	configReader, config, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating pipe: %w", err)
	}
	defer config.Close()

	reports, reportWriter, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating pipe: %w", err), configReader.Close())
	}

	// The process inherits these files in this order, as package nodespec numbers them.
	files := []*os.File{configReader, reportWriter}
	defer func() {
		for _, f := range files {
			f.Close()
		}

		if err != nil {
			reports.Close()
		}
	}()

	if err := os.MkdirAll(o.LogDir, 0o700); err != nil {
		return reports, fmt.Errorf("creating log directory: %w", err)
	}

	for _, step := range o.Node.Steps {
		log, err := os.OpenFile(filepath.Join(o.LogDir, step.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return reports, fmt.Errorf("opening log: %w", err)
		}

		files = append(files, log)
	}

	if err := n.spawn(o.Kit, files); err != nil {
		return reports, err
	}

	// The process waits for its configuration, so cgroups and network are set before anything runs.
	if err := n.group.Add(n.pid); err != nil {
		return reports, err
	}

	if err := o.Attach(ctx, n.pid); err != nil {
		return reports, err
	}

	description, err := json.Marshal(o.Node)
	if err != nil {
		return reports, fmt.Errorf("encoding node: %w", err)
	}

	if _, err := config.Write(append([]byte{'\n'}, description...)); err != nil {
		return reports, fmt.Errorf("configuring node: %w", err)
	}

	return reports, nil
}

// spawn starts the first process in new namespaces, except the cgroup namespace, which the process creates after it has
// been moved to its cgroups. A locked thread waits for it, because the kernel kills the child when the thread that
// created it exits.
func (n *Node) spawn(kit string, files []*os.File) error {
	cmd := exec.Command(kit, "init") //nolint:noctx // Stop ends it, not a context
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}

	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("creating namespaces: %w", err)
			return
		}

		n.pid = cmd.Process.Pid
		started <- nil
		n.err = cmd.Wait()
		close(n.done)
	}()

	return <-started
}

// PID returns the ID of the node's first process; /proc/PID/root is its root file system.
func (n *Node) PID() int { return n.pid }

// Done returns a channel that is closed when the node has ended.
func (n *Node) Done() <-chan struct{} { return n.done }

// Kill sends SIGKILL to the child of the first process that runs program.
func (n *Node) Kill(program string) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.pid))
	if err != nil {
		return fmt.Errorf("killing %s: %w", program, err)
	}

	// Each thread of the first process has its own list of children.
	var children []string
	for _, t := range threads {
		if content, err := os.ReadFile(t); err == nil {
			children = append(children, strings.Fields(string(content))...)
		}
	}

	for _, child := range children {
		pid, err := strconv.Atoi(child)
		if err != nil {
			return fmt.Errorf("killing %s: %w", program, err)
		}

		name, err := os.ReadFile(filepath.Join("/proc", child, "comm"))
		if err == nil && strings.TrimSpace(string(name)) == program {
			return syscall.Kill(pid, syscall.SIGKILL)
		}
	}

	return fmt.Errorf("killing %s: no child of the first process runs it", program)
}

// Stop kills the node: with its first process the kernel kills all others and removes mounts and interfaces. Stop also
// removes the cgroups.
func (n *Node) Stop() error {
	if n.pid != 0 {
		_ = syscall.Kill(n.pid, syscall.SIGKILL)
		<-n.done
	}

	return n.group.Remove(removeBound)
}
