// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const (
	// etcdSocket is the unix socket on which etcd serves the API server, relative to the data directory: only who may
	// enter that directory may reach etcd, and the name stays below the 108 bytes of a socket address.
	etcdSocket = "etcd.sock"
	peerSocket = "peer.sock"
	// etcdStartTimeout bounds the wait for etcd to be ready to serve; a member of one is its own leader within a second.
	etcdStartTimeout = 60 * time.Second
	// etcdQuota is the size at which etcd stops taking writes: 2 GiB, etcd's own default, named here because a long
	// playground may meet it.
	etcdQuota = 2 << 30
	// walSegment is the size in bytes to which etcd fills its log files in advance: by default 64 MB each for two files,
	// which is much for a test and is memory where the directory is on a tmpfs.
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

// runAPIServer serves until SIGTERM: etcd first, the API server on top, and down again in the reverse order.
func runAPIServer(dir string, args []string) (err error) {
	if dir == "" {
		return errors.New("--data-dir is needed")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	// etcd's sockets are named relative to the working directory.
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("enter data directory: %w", err)
	}
	etcd, err := startEtcd()
	if err != nil {
		return fmt.Errorf("start etcd in %s: %w", dir, err)
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
	// A member of one is advertised to nobody, but etcd wants the addresses to look like addresses.
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.LogLevel = "warn"
	// NewConfig leaves this at 0, which logs every single request.
	cfg.WarningUnaryRequestDuration = time.Second
	cfg.QuotaBackendBytes = etcdQuota
	// Data survives the death of the process but not of the machine, which is what a playground promises; waiting for
	// the disk would make every write of the cluster ten times slower.
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
