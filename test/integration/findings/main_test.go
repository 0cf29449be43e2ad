// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package findings_test tests the recommenders for idle and wasteful objects, with the permissions of config/rbac,
// against a real API server and a Prometheus server with eight days of generated series. The clock of the controllers
// is ten days fast, so that the objects of the tests are ten days old.
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
	clockOffset    = 10 * 24 * time.Hour
	historyDays    = 8
	scrapeInterval = 2 * time.Minute
	// waitTimeout limits each wait. On an idle machine a wait takes a second or two.
	waitTimeout = 2 * time.Minute
	gib         = 1 << 30
)

var (
	control *controlplane.ControlPlane
	server  *promserver.Server
	// now is the time of the controllers' clock.
	now time.Time
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	now = time.Now().Add(clockOffset).Truncate(scrapeInterval)
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
