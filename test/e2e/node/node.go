// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node provides real nodes to tests: a kubelet, containerd and runc on a real kernel, joined to a real control plane, in
// namespaces of the test. A package enables them in TestMain,
//
//	func TestMain(m *testing.M) { os.Exit(node.Main(m, node.Setup{})) }
//
// and then starts nodes where it needs them, in about a second each if the host has the cgroup version:
//
//	n := node.Start(t, node.Options{CPUManagerPolicy: "static", ReservedCPUs: "0"})
//
// Main runs the test binary a second time inside the namespaces, which have addresses of their own and leave nothing behind.
// Start skips the test with a reason if the machine cannot run nodes. Nodes are implemented in internal/testbed/realnode.
package node

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/doctor"
	"crane.io/crane/internal/testbed/realnode/sandbox"
)

// Options describes a node; the zero value is the fastest kind that the host supports.
type Options = realnode.NodeOptions

// buildTimeout suffices for a cold build cache.
const buildTimeout = 15 * time.Minute

// shared is the cluster of all tests of the package.
var shared struct {
	missing error // why there are no nodes
	session *sandbox.Session
	assets  assets.Set
	open    func() (*realnode.Cluster, error) // runs once
}

// Setup lists what the tests of a package need beside nodes of the host's own cgroup version.
type Setup struct {
	// VirtualMachines downloads the kernel of virtual machines unless it is cached. Short tests have no virtual machines.
	VirtualMachines bool
	// Systemd also downloads the kernel and root of virtual machines with systemd.
	Systemd bool
	// Commands lists commands of this module to provide as images, named by Image.
	Commands []string
	// Services gives the nodes ClusterIPs and cluster DNS.
	Services bool
}

// Main runs the tests of a package inside namespaces and returns their exit status. The control plane starts with the first node.
func Main(m *testing.M, setup Setup) int {
	if !sandbox.Inside() {
		if err := doctor.Problems(doctor.CheckNamespaces(context.Background())); err != nil {
			shared.missing = fmt.Errorf("this machine cannot run real nodes: %w", err)
			return m.Run()
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()

	set, err := assets.ForTest(ctx, sandbox.Inside())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	if set, err = set.WithCommands(setup.Commands...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	flag.Parse() //nolint:revive // As TestMain, whose part this is, has to before it asks for -short.
	if setup.VirtualMachines && !testing.Short() && !sandbox.Inside() && doctor.Problems(doctor.CheckMachine(ctx)) == nil {
		// Without it the tests that need one are skipped.
		if err := set.FetchKernel(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "no virtual machines:", err)
		}

		if setup.Systemd {
			if err := set.FetchSystemd(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "no virtual machines with systemd:", err)
			}
		}
	}

	status, err := sandbox.Enter(sandbox.Options{Kit: set.Kit, Ports: 1}, func(s *sandbox.Session) int {
		shared.session = s
		shared.assets = set
		shared.open = sync.OnceValues(func() (*realnode.Cluster, error) { return openCluster(setup) })

		// The kernel stops the control plane with this process, the first of its PID namespace.
		return m.Run()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(status, 1)
	}

	return status
}

// openCluster starts the shared control plane.
func openCluster(setup Setup) (*realnode.Cluster, error) {
	ctx := context.Background()
	s := shared.session
	control, err := controlplane.Start(ctx, controlplane.Options{
		Dir:           filepath.Join(s.Dir, "controlplane"),
		Binary:        shared.assets.Controlplane,
		APIServerPort: s.Ports[0],
		Components:    []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler},
		ExtraArgs:     realnode.APIServerArgs(),
	})
	if err != nil {
		return nil, err
	}

	s.Relay("127.0.0.1")
	cluster, err := realnode.Open(ctx, s, control, shared.assets, nil)
	if err == nil && setup.Services {
		err = cluster.EnableServices(ctx)
	}

	return cluster, err
}

// Dir returns the directory of the session, which is removed at its end.
func Dir() string { return shared.session.Dir }

// Bin returns the directory of the binaries.
func Bin() string { return filepath.Dir(shared.assets.Kit) }

// Binary returns the path of a binary of this module that runs beside nodes. `make test-nodes` builds it; the test is skipped if it is
// missing.
func Binary(t testing.TB, name string) string {
	t.Helper()

	path := filepath.Join(filepath.Dir(shared.assets.Kit), name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: run `make test-nodes`", err)
	}

	return path
}

// Command returns the path of a command listed in Setup.
func Command(name string) string { return shared.assets.Commands[name] }

// Node is a node of a test.
type Node struct {
	*realnode.Node
	// Client has administrator rights.
	Client kubernetes.Interface
	// Config is the configuration of Client.
	Config *rest.Config
}

// Start starts a node for the duration of the test and returns when it is Ready. It skips the test if the machine cannot run such a node,
// and fails it if the node does not start.
func Start(t testing.TB, o Options) *Node {
	t.Helper()
	return StartAll(t, o)[0]
}

// StartAll starts several nodes concurrently.
func StartAll(t testing.TB, options ...Options) []*Node {
	t.Helper()

	cluster := Open(t)
	for _, o := range options {
		if err := cluster.CheckSupport(t.Context(), o); err != nil {
			t.Skipf("this machine cannot run such a node: %v", err)
		}
	}

	started, err := cluster.StartNodes(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}

	nodes := make([]*Node, len(started))
	// A failed test prints what the node has logged before it stops.
	for i, n := range started {
		nodes[i] = &Node{Node: n, Client: cluster.Client(), Config: cluster.Control().Config()}
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(n.LastLogs(20))
			}
			if err := n.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("stopping %s: %v", n.Name(), err)
			}
		})
	}

	return nodes
}

// Open returns the shared cluster without a node. It skips the test if there cannot be one.
func Open(t testing.TB) *realnode.Cluster {
	t.Helper()

	if shared.missing != nil {
		t.Skip(strings.TrimSpace(shared.missing.Error()))
	}

	if shared.open == nil {
		t.Fatal("TestMain does not call node.Main, want the call")
	}

	cluster, err := shared.open()
	if err != nil {
		t.Fatal(err)
	}

	return cluster
}
