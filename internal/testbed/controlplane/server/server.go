// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server runs the components of a Kubernetes control plane in this process: the unchanged upstream components
// with an embedded etcd. It is the only package that links k8s.io/kubernetes for them. Package
// internal/testbed/controlplane starts this code as a child process and decides flags, certificates and lifecycle.
//
// The tests in test/integration/controlplane run it as a child process: a test in this package would build all of
// Kubernetes with the race detector.
package server

import (
	"fmt"
	"time"
	_ "time/tzdata" // time zones of CronJobs, also on a machine without a database of them

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's request metrics, as upstream registers them
	_ "k8s.io/component-base/metrics/prometheus/version"  // the build's version as a metric
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"crane.io/crane/internal/testbed/process"
)

// stopGrace bounds the shutdown of a component after its parent process has exited. It is longer than the API server's
// own shutdown (about 2 s).
const stopGrace = 10 * time.Second

// NewCommand returns the command whose subcommands are the components. Arguments after "--" are passed to the upstream
// component unchanged.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "Run one component of a Kubernetes control plane on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			process.ExitWithParent(stopGrace)
		},
	}
	root.AddCommand(newAPIServerCommand(), newComponent("controller-manager", "kube-controller-manager",
		kcm.NewControllerManagerCommand),
		newComponent("scheduler", "kube-scheduler", func() *cobra.Command { return scheduler.NewSchedulerCommand() }))
	return root
}

// newComponent wraps an upstream command. The upstream command is created only when it runs, because its constructor
// registers flags and signal handlers for the whole process.
func newComponent(name, component string, upstream func() *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   name + " -- [" + component + " flags]",
		Short: "Run " + component,
		RunE: func(_ *cobra.Command, args []string) error {
			return runUpstream(upstream(), args)
		},
	}
}

// runUpstream runs an upstream command with args like component-base's main does, but returns the error to the caller.
func runUpstream(cmd *cobra.Command, args []string) error {
	cmd.SetArgs(args)
	if err := cli.RunNoErrOutput(cmd); err != nil {
		return fmt.Errorf("run %s: %w", cmd.Name(), err)
	}
	return nil
}
