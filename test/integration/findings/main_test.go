// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package findings_test runs the recommenders beside Resource, Replicas and HPA, with the rights of config/rbac, against
// a real API server and a real Prometheus that holds eight days of known series. The clock of the controllers is ten days
// ahead, so that what the tests make is ten days old.
package findings_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"crane.io/crane/internal/controlplane"
	"crane.io/crane/internal/promserver"
	"crane.io/crane/test/integration/harness"
)

const (
	ahead       = 10 * 24 * time.Hour
	historyDays = 8
	scrape      = 2 * time.Minute
	// bound is how long a test waits for what takes a second or two on an idle machine.
	bound = 2 * time.Minute
	gib   = 1 << 30
)

var (
	control *controlplane.ControlPlane
	server  *promserver.Server
	// now is the time of the controllers' clock.
	now time.Time
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	dir, err := os.MkdirTemp("", "findings-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	now = time.Now().Add(ahead).Truncate(scrape)
	if err := writeHistory(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "writing the history:", err)
		return 1
	}
	if server, err = promserver.Open(promserver.Options{Dir: dir}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Close()
	failed := 0
	status := controlplane.ForMain(m, controlplane.Options{}, func(c *controlplane.ControlPlane) {
		control = c
		err := harness.Install(ctx, c.Config(), "findings-test", harness.Everything)
		if err == nil {
			err = createCluster(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = 1
		}
	})
	return max(status, failed)
}
