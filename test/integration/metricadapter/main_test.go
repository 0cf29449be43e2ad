// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricadapter_test runs the real metric-adapter, with the rights of config/rbac, behind the aggregation layer of a real API
// server: real HPAs scale on what it serves. Predictions and autoscalers are objects that the tests write.
package metricadapter_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"crane.io/crane/internal/controlplane"
	"crane.io/crane/test/integration/harness"
)

var (
	control *controlplane.ControlPlane
	binary  string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "metric-adapter-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "metric-adapter")
	ctx := context.Background()
	if err := harness.Build(ctx, binary, "metric-adapter"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	failed := 0
	options := controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager},
		ExtraArgs: map[controlplane.Component][]string{controlplane.ControllerManager: {
			"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=1s",
		}},
	}
	status := controlplane.ForMain(m, options, func(c *controlplane.ControlPlane) {
		control = c
		if err := install(ctx, c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = 1
		}
	})
	return max(status, failed)
}
