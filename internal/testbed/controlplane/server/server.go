// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server hosts the roles of a Kubernetes control plane in this process: the upstream components with an embedded
// etcd, nothing of their behaviour changed. It is the only room that links k8s.io/kubernetes for them. Which flags a role
// gets, where its certificates come from and when it is started or stopped is decided by internal/testbed/controlplane, which
// starts this code as a child process; this package must not know of kubeconfigs, ports or directories beyond its flags.
//
// Its tests are those of test/integration/controlplane, which run it as a child: a test here would build the whole of
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

// stopGrace bounds how long a role may take to end by itself once its parent is gone. It is longer than the API server's
// own shutdown (about 2 s) and shorter than what a person waits for.
const stopGrace = 10 * time.Second

// NewCommand returns the command whose subcommands are the roles. Arguments after "--" go to the upstream component as
// they are.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "Run one role of a Kubernetes control plane on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			process.ExitWithParent(stopGrace)
		},
	}
	root.AddCommand(newAPIServerCommand(), newRole("controller-manager", "kube-controller-manager",
		kcm.NewControllerManagerCommand),
		newRole("scheduler", "kube-scheduler", func() *cobra.Command { return scheduler.NewSchedulerCommand() }))
	return root
}

// newRole wraps an upstream component. The upstream command is made only when its role runs, because making it registers
// flags and signal handlers for the whole process.
func newRole(name, component string, upstream func() *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   name + " -- [" + component + " flags]",
		Short: "Run " + component,
		RunE: func(_ *cobra.Command, args []string) error {
			return runUpstream(upstream(), args)
		},
	}
}

// runUpstream runs an upstream command with args as component-base's own main does, but leaves the error to the caller.
func runUpstream(cmd *cobra.Command, args []string) error {
	cmd.SetArgs(args)
	if err := cli.RunNoErrOutput(cmd); err != nil {
		return fmt.Errorf("run %s: %w", cmd.Name(), err)
	}
	return nil
}
