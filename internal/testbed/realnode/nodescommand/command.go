// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodescommand is what people call: start nodes and keep them until Ctrl-C, and say what a machine lacks for it. Nothing
// but cmd/nodes imports it.
package nodescommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/doctor"
	"crane.io/crane/internal/testbed/realnode/hostcgroup"
	"crane.io/crane/internal/testbed/realnode/sandbox"
)

// options of the command.
type options struct {
	nodes  int
	cgroup int
	// machine asks for virtual machines also where the cgroup version does not need them.
	machine bool
	// driver is the kubelet's cgroup driver.
	driver string
	// runtime is the container runtime.
	runtime string
	binDir  string
	once    bool
	rounds  int
}

// Run runs the command line and returns the exit status.
func Run(args []string, out, errOut io.Writer) (int, error) {
	o := options{nodes: 2}
	flags := pflag.NewFlagSet("nodes", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() {
		fmt.Fprintf(errOut, "nodes up | doctor | bench [flags]\n%s", flags.FlagUsages())
	}
	flags.IntVar(&o.nodes, "nodes", o.nodes, "number of nodes")
	flags.IntVar(&o.cgroup, "cgroup", 0, "cgroup version of the nodes, 1 or 2; another than this machine's means emulated virtual machines (default: this machine's)")
	flags.BoolVar(&o.machine, "machine", false, "run the nodes in virtual machines whatever the cgroup version")
	flags.StringVar(&o.driver, "cgroup-driver", realnode.CgroupFS, "who makes the cgroups of pods: cgroupfs or systemd, which runs the nodes in virtual machines, as a cluster of today has them")
	flags.StringVar(&o.runtime, "runtime", realnode.Containerd, "container runtime: containerd or crio, which `make build-crio` makes")
	flags.StringVar(&o.binDir, "bin-dir", "", "directory of nodekit, kubelet and controlplane (default: that of this binary)")
	flags.BoolVar(&o.once, "once", false, "end when the nodes are Ready")
	flags.IntVar(&o.rounds, "rounds", 20, "bench: number of rounds")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0, nil
		}
		return 2, err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return 2, errors.New("want one of up, doctor, bench")
	}
	if o.nodes < 1 || o.nodes > bridge.MaxNodes || o.rounds < 1 {
		return 2, fmt.Errorf("%d nodes in %d rounds: want 1 to %d nodes and 1 round or more", o.nodes, o.rounds, bridge.MaxNodes)
	}
	if o.binDir == "" {
		self, err := os.Executable()
		if err != nil {
			return 1, fmt.Errorf("find the directory of this binary: %w", err)
		}
		o.binDir = filepath.Dir(self)
	}
	switch flags.Arg(0) {
	case "bench":
		return bench(o, out)
	case "up":
		return enter(o, out, errOut)
	case "doctor":
		return diagnose(out), nil
	}
	return 2, fmt.Errorf("%q is not one of up, doctor, bench", flags.Arg(0))
}

// diagnose prints what this machine has and lacks. Without virtual machines it is still good for one kind of node.
func diagnose(out io.Writer) int {
	ctx := context.Background()
	capsule, machine := doctor.CheckNamespaces(ctx), doctor.CheckMachine(ctx)
	fmt.Fprintln(out, "Nodes in namespaces, with this machine's own cgroups (every kind of node needs this):")
	doctor.Print(out, capsule)
	fmt.Fprintln(out, "Nodes in emulated virtual machines, for the other cgroup version:")
	doctor.Print(out, machine)
	if doctor.Problems(capsule) != nil {
		return 1
	}
	return 0
}

// enter checks the machine, enters namespaces and comes up there.
func enter(o options, out, errOut io.Writer) (int, error) {
	begin := time.Now()
	if err := doctor.Problems(doctor.CheckNamespaces(context.Background())); err != nil && !sandbox.Inside() {
		return 1, fmt.Errorf("this machine cannot run real nodes:\n%w", err)
	}
	set, err := assets.FromDir(o.binDir)
	if err != nil {
		return 1, err
	}
	if !sandbox.Inside() {
		if err := fetch(set, o); err != nil {
			return 1, err
		}
	}
	return sandbox.Enter(sandbox.Options{Kit: set.Kit, Ports: 1}, func(s *sandbox.Session) int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if err := up(ctx, s, set, o, begin, out, errOut); err != nil && ctx.Err() == nil {
			fmt.Fprintln(errOut, "nodes:", err)
			return 1
		}
		return 0
	})
}

// fetch gets what virtual machines need from elsewhere, where there are to be some.
func fetch(set assets.Set, o options) error {
	host, err := hostcgroup.Detect()
	if err != nil {
		return err
	}
	if !o.machine && o.driver == realnode.CgroupFS && (o.cgroup == 0 || o.cgroup == realnode.HostVersion(host)) {
		return nil
	}
	ctx := context.Background()
	if err := doctor.Problems(doctor.CheckMachine(ctx)); err != nil {
		return fmt.Errorf("this machine cannot run nodes in virtual machines:\n%w", err)
	}
	if o.driver == realnode.Systemd {
		if err := set.FetchSystemd(ctx); err != nil {
			return err
		}
	}
	return set.FetchKernel(ctx)
}

// up starts everything, says how to get at it and stays until ctx ends. It stops nothing: this process is the first of its
// namespaces, so the kernel ends the others with it.
func up(ctx context.Context, s *sandbox.Session, set assets.Set, o options, begin time.Time, out, errOut io.Writer) error {
	control, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(s.Dir, "controlplane"), Binary: set.Controlplane, APIServerPort: s.Ports[0],
		Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler}, Log: errOut,
	})
	if err != nil {
		return err
	}
	s.Relay("127.0.0.1")
	cluster, err := realnode.Open(ctx, s, control, set, errOut)
	if err != nil {
		return err
	}
	wanted := make([]realnode.NodeOptions, o.nodes)
	for i := range wanted {
		wanted[i] = realnode.NodeOptions{Cgroup: o.cgroup, Machine: o.machine, CgroupDriver: o.driver, Runtime: o.runtime}
		if err := cluster.CheckSupport(ctx, wanted[i]); err != nil {
			return err
		}
	}
	nodes, err := cluster.StartNodes(ctx, wanted...)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d nodes are Ready after %s.\n\n", len(nodes), time.Since(begin).Round(10*time.Millisecond))
	fmt.Fprintf(out, "  kubeconfig  %s\n  logs        %s, %s\n\n", control.Kubeconfig(), filepath.Join(s.Dir, "nodes"), filepath.Join(control.Dir(), "logs"))
	if o.once {
		return nil
	}
	fmt.Fprintf(out, "Try: kubectl --kubeconfig %s get nodes -o wide\nCtrl-C ends them and leaves nothing behind.\n", control.Kubeconfig())
	<-ctx.Done()
	return nil
}
