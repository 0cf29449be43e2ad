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

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
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

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	now = time.Now().Add(ahead).Truncate(scrape)
	os.Exit(harness.Main(m, harness.Suite{
		Name: "findings",
		Before: func(ctx context.Context, dir string) (err error) {
			if err := writeHistory(ctx, dir); err != nil {
				return fmt.Errorf("writing the history: %w", err)
			}
			server, err = promserver.Open(promserver.Options{Dir: dir})
			return err
		},
		Ready: func(ctx context.Context, c *controlplane.ControlPlane, _ string) error {
			control = c
			return createCluster(ctx)
		},
		After: func() error {
			if server == nil {
				return nil
			}
			return server.Close()
		},
	}))
}
