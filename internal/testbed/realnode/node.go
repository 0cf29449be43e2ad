// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/doctor"
	"crane.io/crane/internal/testbed/realnode/microvm"
	"crane.io/crane/internal/testbed/realnode/namespacenode"
	"crane.io/crane/internal/testbed/realnode/nodespec"
)

// Node is one running node.
type Node struct {
	cluster *Cluster
	number  int
	options NodeOptions
	capsule *namespacenode.Capsule // the one or the other
	machine *microvm.Machine
	ended   <-chan struct{}
}

// Name is that of the Node object.
func (n *Node) Name() string { return n.options.Name }

// Cgroup is the version of the node's cgroups.
func (n *Node) Cgroup() int { return n.options.Cgroup }

// Systemd tells whether systemd is the node's first process and makes its cgroups.
func (n *Node) Systemd() bool { return n.options.systemd() }

// Runtime is the container runtime, Containerd or CRIO.
func (n *Node) Runtime() string {
	if n.options.crio() {
		return CRIO
	}
	return Containerd
}

// Machine tells whether the node is a virtual machine.
func (n *Node) Machine() bool { return n.options.Machine }

// Done is closed when the node has ended, by itself or by Stop.
func (n *Node) Done() <-chan struct{} { return n.ended }

// Path returns where a file of the node is to be found from here; empty for a virtual machine, whose files are its own.
// Cgroup files are at /sys/fs/cgroup as in any node.
func (n *Node) Path(inside string) string {
	if n.capsule == nil {
		return ""
	}
	return filepath.Join("/proc", fmt.Sprint(n.capsule.PID()), "root", inside)
}

// LogDir holds a log for each of the node's programs.
func (n *Node) LogDir() string { return n.cluster.logDir(n.options.Name) }

// LastLogs returns the end of each log, for reports.
func (n *Node) LastLogs(lines int) string {
	files, _ := filepath.Glob(filepath.Join(n.LogDir(), "*.log"))
	var b strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(content)), "\n")
		fmt.Fprintf(&b, "--- %s of %s\n%s\n", filepath.Base(file), n.Name(), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return b.String()
}

// Kill sends SIGKILL to one of the node's programs: containerd or kubelet. The node ends with it, unless its options say that it is to
// be started again. Not for virtual machines.
func (n *Node) Kill(program string) error {
	if n.capsule == nil {
		return fmt.Errorf("kill %s of %s: it is not in reach", program, n.Name())
	}
	return n.capsule.Kill(program)
}

// start returns when the node is Ready.
func (n *Node) start(ctx context.Context) error {
	c, name, begin := n.cluster, n.options.Name, time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, n.options.bound(), fmt.Errorf("not within %s", n.options.bound()))
	defer cancel()
	description, err := c.describe(ctx, n.number, n.options)
	if err != nil {
		return err
	}
	if !n.options.RealZones {
		description.NUMA = n.options.zones()
	}
	if n.options.Machine {
		err = n.startMachine(ctx, description)
	} else {
		err = n.startCapsule(ctx, description)
	}
	if err == nil {
		err = c.awaitReady(ctx, name, n.ended)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w\n%s", name, err, n.LastLogs(8))
	}
	c.logf("%s: Ready after %s", name, time.Since(begin).Round(10*time.Millisecond))
	return nil
}

func (n *Node) startCapsule(ctx context.Context, description nodespec.Node) error {
	c := n.cluster
	description.Hierarchies, description.Unified = c.host.Names(), c.host.Unified != nil
	description.Binds = map[string]string{kubeletPath: c.assets.Kubelet, imagesPath: c.images}
	if n.options.crio() {
		description.Binds[crioDir], description.Binds[boundedRunc] = c.assets.CRIO(), c.assets.Kit
	}
	description.Root = filepath.Join(n.LogDir(), "root")
	if err := os.MkdirAll(description.Root, 0o700); err != nil {
		return fmt.Errorf("make root directory of %s: %w", n.options.Name, err)
	}
	var err error
	n.capsule, err = namespacenode.Start(ctx, namespacenode.Options{
		Node: description, Kit: c.assets.Kit, Group: c.session.Group, LogDir: n.LogDir(),
		Attach: func(ctx context.Context, pid int) error { return bridge.Attach(ctx, n.number, pid) },
	}, c.report(n.options.Name))
	if err == nil {
		n.ended = n.capsule.Done()
	}
	return err
}

func (n *Node) startMachine(ctx context.Context, description nodespec.Node) error {
	c := n.cluster
	files, err := c.assets.Machine(ctx, assets.Contents{
		Programs: append(doctor.Programs(), doctor.Plugins()...), Images: c.images, Systemd: n.options.systemd(), CRIO: n.options.crio(),
	})
	if err != nil {
		return err
	}
	if n.options.Cgroup == 1 {
		description.Hierarchies = machineHierarchies()
	}
	tap, err := bridge.AttachTap(ctx, n.number)
	if err != nil {
		return err
	}
	var zones []string
	if n.options.RealZones {
		zones = n.options.zones()
	}
	n.machine, err = microvm.Start(ctx, microvm.Options{
		Node: description, Files: files, Append: n.options.kernelArguments(), CPUs: n.options.CPUs, Threads: n.options.Threads, Zones: zones,
		MemoryMiB: n.options.MemoryMiB, Tap: tap, Number: n.number,
		Group: c.session.Group, LogDir: n.LogDir(),
	}, c.report(n.options.Name))
	if err == nil {
		n.ended = n.machine.Done()
	}
	return err
}

// machineHierarchies are those of cgroup v1 in a virtual machine, each controller by itself.
func machineHierarchies() []string {
	return []string{"cpu,cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "name=systemd"}
}

// Stop ends the node at once, as if its power were cut, and deletes its Node object. It may be called again.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	if n.capsule != nil {
		errs = append(errs, n.capsule.Stop())
	}
	if n.machine != nil {
		errs = append(errs, n.machine.Stop())
	}
	errs = append(errs, bridge.Detach(ctx, n.number))
	err := n.cluster.client.CoreV1().Nodes().Delete(ctx, n.options.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("delete node %s: %w", n.options.Name, err))
	}
	n.cluster.mu.Lock()
	delete(n.cluster.nodes, n.number)
	n.cluster.mu.Unlock()
	return errors.Join(errs...)
}
