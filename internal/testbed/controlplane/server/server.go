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
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"
	_ "time/tzdata" // time zones of CronJobs, also on a machine without a database of them

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's request metrics, as upstream registers them
	_ "k8s.io/component-base/metrics/prometheus/version"  // the build's version as a metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
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
		return fmt.Errorf("running %s: %w", cmd.Name(), err)
	}

	return nil
}

const (
	// etcdSocket is the Unix socket on which etcd serves the API server, relative to the data directory: only users
	// with access to that directory can reach etcd, and the name stays below the limit of 108 bytes.
	etcdSocket = "etcd.sock"
	peerSocket = "peer.sock"
	// etcdStartTimeout bounds the wait for etcd to become ready; a single member elects itself leader within a second.
	etcdStartTimeout = 60 * time.Second
	// etcdQuota is the size in bytes at which etcd rejects writes: 2 GiB, etcd's own default, set explicitly because a
	// long-running playground can reach it.
	etcdQuota = 2 << 30
	// walSegment is the size in bytes to which etcd preallocates its log files. The default of 64 MB for each of two
	// files is too much for a test and uses memory on a tmpfs.
	walSegment = 8 << 20
)

func newAPIServerCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "apiserver --data-dir DIR -- [kube-apiserver flags]",
		Short: "Run kube-apiserver with an embedded etcd",
		RunE: func(_ *cobra.Command, args []string) error {
			return runAPIServer(dir, args)
		},
	}

	cmd.Flags().StringVar(&dir, "data-dir", "", "directory of etcd's data and socket")
	return cmd
}

// runAPIServer runs etcd and the API server until SIGTERM and stops them in reverse order.
func runAPIServer(dir string, args []string) (err error) {
	if dir == "" {
		return errors.New("--data-dir is required")
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating data directory: %w", err)
	}

	// etcd's sockets are named relative to the working directory.
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("entering data directory: %w", err)
	}

	etcd, err := startEtcd()
	if err != nil {
		return fmt.Errorf("starting etcd in %s: %w", dir, err)
	}
	defer func() {
		etcd.Close()
		err = errors.Join(err, os.RemoveAll(etcdSocket), os.RemoveAll(peerSocket))
	}()

	return runUpstream(apiserver.NewAPIServerCommand(), append(args, "--etcd-servers=unix://"+etcdSocket))
}

func startEtcd() (*embed.Etcd, error) {
	wal.SegmentSizeBytes = walSegment
	cfg := embed.NewConfig()
	cfg.Dir = "etcd"
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Host: etcdSocket}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peerSocket}}

	// A single member advertises to no peer, but etcd requires valid addresses.
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.LogLevel = "warn"

	// NewConfig leaves this at 0, which logs every single request.
	cfg.WarningUnaryRequestDuration = time.Second
	cfg.QuotaBackendBytes = etcdQuota

	// Data survives a crash of the process but not of the machine, which is sufficient for a playground; fsync would
	// make every write ten times slower.
	cfg.UnsafeNoFsync = true
	cfg.EnableGRPCGateway = false

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}

	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-time.After(etcdStartTimeout):
		err = fmt.Errorf("not ready within %s", etcdStartTimeout)
	}

	etcd.Close()
	return nil, err
}
