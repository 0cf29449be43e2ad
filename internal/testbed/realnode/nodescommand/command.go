// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodescommand implements the command `nodes`: it starts real nodes until Ctrl-C, checks the requirements of a
// machine, and measures starts.
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

// options are the command's flags.
type options struct {
	nodes  int
	cgroup int
	// machine requests virtual machines even if the cgroup version does not require them.
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

	flags.IntVar(&o.cgroup, "cgroup", 0, "cgroup version of the nodes, 1 or 2; a version other than this machine's requires emulated virtual machines (default: this machine's)")
	flags.BoolVar(&o.machine, "machine", false, "run the nodes in virtual machines regardless of the cgroup version")
	flags.StringVar(&o.driver, "cgroup-driver", realnode.CgroupFS, "cgroup driver: cgroupfs, or systemd, which requires virtual machines")
	flags.StringVar(&o.runtime, "runtime", realnode.Containerd, "container runtime: containerd, or crio, which requires make build-crio")
	flags.StringVar(&o.binDir, "bin-dir", "", "directory of nodekit, kubelet and controlplane (default: that of this binary)")
	flags.BoolVar(&o.once, "once", false, "exit when the nodes are Ready")
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

	// `make build` puts the other binaries beside this one.
	if o.binDir == "" {
		self, err := os.Executable()
		if err != nil {
			return 1, fmt.Errorf("finding the directory of this binary: %w", err)
		}

		o.binDir = filepath.Dir(self)
	}

	switch flags.Arg(0) {
	case "bench":
		return bench(o, out)
	case "up":
		return enter(o, out, errOut)
	case "doctor":
		return runDoctor(out), nil
	}

	return 2, fmt.Errorf("%q is not one of up, doctor, bench", flags.Arg(0))
}

// runDoctor prints the requirements that this machine meets and lacks. Virtual machines are optional.
func runDoctor(out io.Writer) int {
	ctx := context.Background()
	namespaces := doctor.CheckNamespaces(ctx)
	machine := doctor.CheckMachine(ctx)
	fmt.Fprintln(out, "Nodes in namespaces with this machine's cgroups (required for every kind of node):")
	doctor.Print(out, namespaces)
	fmt.Fprintln(out, "Nodes in emulated virtual machines with the other cgroup version:")
	doctor.Print(out, machine)

	if doctor.Problems(namespaces) != nil {
		return 1
	}

	return 0
}

// enter checks the machine, enters new namespaces and starts the nodes there.
func enter(o options, out, errOut io.Writer) (int, error) {
	begin := time.Now()
	if err := doctor.Problems(doctor.CheckNamespaces(context.Background())); err != nil && !sandbox.Inside() {
		return 1, fmt.Errorf("this machine cannot run real nodes:\n%w", err)
	}

	set, err := assets.FromDir(o.binDir)
	if err != nil {
		return 1, err
	}

	// Inside there is no route to the outside: download first.
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

// fetch downloads the kernel and systemd if the options require virtual machines.
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

// up starts everything, prints how to reach it and waits until ctx ends. It stops nothing: this process is the first of
// its PID namespace, so the kernel kills the others with it.
func up(ctx context.Context, s *sandbox.Session, set assets.Set, o options, begin time.Time, out, errOut io.Writer) error {
	control, err := controlplane.Start(ctx, controlplane.Options{
		Dir:           filepath.Join(s.Dir, "controlplane"),
		Binary:        set.Controlplane,
		APIServerPort: s.Ports[0],
		Components:    []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler},
		Log:           errOut,
	})
	if err != nil {
		return err
	}

	s.Relay("127.0.0.1")
	cluster, err := realnode.Open(ctx, s, control, set, errOut)
	if err != nil {
		return err
	}

	// All nodes are checked before the first one starts.
	options := make([]realnode.NodeOptions, o.nodes)
	for i := range options {
		options[i] = realnode.NodeOptions{
			Cgroup:       o.cgroup,
			Machine:      o.machine,
			CgroupDriver: o.driver,
			Runtime:      o.runtime,
		}

		if err := cluster.CheckSupport(ctx, options[i]); err != nil {
			return err
		}
	}

	nodes, err := cluster.StartNodes(ctx, options...)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "%d nodes are Ready after %s.\n\n", len(nodes), time.Since(begin).Round(10*time.Millisecond))
	fmt.Fprintf(out, "  kubeconfig  %s\n  logs        %s, %s\n\n", control.Kubeconfig(), filepath.Join(s.Dir, "nodes"), filepath.Join(control.Dir(), "logs"))

	if o.once {
		return nil
	}

	fmt.Fprintf(out, "Try: kubectl --kubeconfig %s get nodes -o wide\nCtrl-C stops the nodes and removes everything.\n", control.Kubeconfig())
	<-ctx.Done()
	return nil
}
