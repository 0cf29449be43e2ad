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
	cluster       *Cluster
	number        int
	options       NodeOptions
	namespaceNode *namespacenode.Node // either this or machine is set
	machine       *microvm.Machine
	ended         <-chan struct{}
}

// Name returns the name of the Node object.
func (n *Node) Name() string { return n.options.Name }

// Address returns the node's address.
func (n *Node) Address() string { return bridge.Address(n.number).Addr().String() }

// Cgroup returns the node's cgroup version.
func (n *Node) Cgroup() int { return n.options.Cgroup }

// Systemd reports whether systemd is the node's first process and manages its cgroups.
func (n *Node) Systemd() bool { return n.options.systemd() }

// Runtime returns the container runtime, Containerd or CRIO.
func (n *Node) Runtime() string {
	if n.options.crio() {
		return CRIO
	}

	return Containerd
}

// Machine reports whether the node is a virtual machine.
func (n *Node) Machine() bool { return n.options.Machine }

// Done returns a channel that is closed when the node has ended.
func (n *Node) Done() <-chan struct{} { return n.ended }

// Path returns the host path of a file of the node; empty for a virtual machine. Cgroup files are below /sys/fs/cgroup
// of the node.
func (n *Node) Path(inside string) string {
	if n.namespaceNode == nil {
		return ""
	}

	return filepath.Join("/proc", fmt.Sprint(n.namespaceNode.PID()), "root", inside)
}

// LogDir returns the directory with a log for each of the node's programs.
func (n *Node) LogDir() string { return n.cluster.logDir(n.options.Name) }

// LastLogs returns the last lines of each log.
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

// Kill sends SIGKILL to one of the node's programs: containerd or kubelet. The node ends with it unless
// NodeOptions.Restart is set. It is not supported for virtual machines.
func (n *Node) Kill(program string) error {
	if n.namespaceNode == nil {
		return fmt.Errorf("killing %s of %s: not supported for virtual machines", program, n.Name())
	}

	return n.namespaceNode.Kill(program)
}

// start starts the node and returns when it is Ready.
func (n *Node) start(ctx context.Context) error {
	c := n.cluster
	name := n.options.Name
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, n.options.startTimeout(), fmt.Errorf("not within %s", n.options.startTimeout()))
	defer cancel()

	description, err := c.nodeSpec(ctx, n.number, n.options)
	if err != nil {
		return err
	}

	// Zones of a real topology come from the emulator instead.
	if !n.options.RealZones {
		description.NUMA = n.options.zones()
	}

	if n.options.Machine {
		err = n.startMachine(ctx, description)
	} else {
		err = n.startNamespaceNode(ctx, description)
	}

	if err == nil {
		err = c.awaitReady(ctx, name, n.ended)
	}

	if err != nil {
		return fmt.Errorf("starting %s: %w\n%s", name, err, n.LastLogs(8))
	}

	c.logf("%s: Ready after %s", name, time.Since(begin).Round(10*time.Millisecond))
	return nil
}

func (n *Node) startNamespaceNode(ctx context.Context, description nodespec.Node) error {
	c := n.cluster

	description.Hierarchies = c.host.Names()
	description.Unified = c.host.Unified != nil

	// Files of this machine appear in the node without a copy.
	description.Binds = map[string]string{kubeletPath: c.assets.Kubelet, imagesPath: c.images}
	if c.services {
		description.Binds[kubeProxyPath] = c.assets.KubeProxy()
	}

	if n.options.crio() {
		description.Binds[crioDir] = c.assets.CRIO()
		description.Binds[boundedRunc] = c.assets.Kit
	}

	description.Root = filepath.Join(n.LogDir(), "root")
	if err := os.MkdirAll(description.Root, 0o700); err != nil {
		return fmt.Errorf("creating the root directory of %s: %w", n.options.Name, err)
	}

	var err error
	n.namespaceNode, err = namespacenode.Start(ctx, namespacenode.Options{
		Node:   description,
		Kit:    c.assets.Kit,
		Group:  c.session.Group,
		LogDir: n.LogDir(),
		Attach: func(ctx context.Context, pid int) error { return bridge.Attach(ctx, n.number, pid) },
	}, c.report(n.options.Name))

	if err == nil {
		n.ended = n.namespaceNode.Done()
	}

	return err
}

func (n *Node) startMachine(ctx context.Context, description nodespec.Node) error {
	c := n.cluster
	files, err := c.assets.Machine(ctx, assets.Contents{
		Programs: append(doctor.Programs(), doctor.Plugins()...),
		Images:   c.images,
		Systemd:  n.options.systemd(),
		CRIO:     n.options.crio(),
	})
	if err != nil {
		return err
	}

	if n.options.Cgroup == 1 {
		description.Hierarchies = machineHierarchies()
	}

	// The emulator attaches to an interface that exists already.
	tap, err := bridge.AttachTap(ctx, n.number)
	if err != nil {
		return err
	}

	var zones []string
	if n.options.RealZones {
		zones = n.options.zones()
	}

	n.machine, err = microvm.Start(ctx, microvm.Options{
		Node:      description,
		Files:     files,
		Append:    n.options.kernelArguments(),
		CPUs:      n.options.CPUs,
		Threads:   n.options.Threads,
		Zones:     zones,
		MemoryMiB: n.options.MemoryMiB,
		Tap:       tap,
		Number:    n.number,
		Group:     c.session.Group,
		LogDir:    n.LogDir(),
	}, c.report(n.options.Name))

	if err == nil {
		n.ended = n.machine.Done()
	}

	return err
}

// machineHierarchies returns the cgroup v1 hierarchies of a virtual machine.
func machineHierarchies() []string {
	return []string{"cpu,cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "name=systemd"}
}

// Stop ends the node immediately, without a shutdown, and deletes its Node object. It is idempotent.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	if n.namespaceNode != nil {
		errs = append(errs, n.namespaceNode.Stop())
	}
	if n.machine != nil {
		errs = append(errs, n.machine.Stop())
	}

	errs = append(errs, bridge.Detach(ctx, n.number))
	err := n.cluster.client.CoreV1().Nodes().Delete(ctx, n.options.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("deleting node %s: %w", n.options.Name, err))
	}

	n.cluster.mu.Lock()
	delete(n.cluster.nodes, n.number)
	n.cluster.mu.Unlock()

	return errors.Join(errs...)
}
