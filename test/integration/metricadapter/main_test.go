// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricadapter_test runs the real metric-adapter, with the rights of config/rbac, behind the aggregation layer of a real
// API server: real HPAs scale on its metrics. The tests write predictions and autoscalers.
package metricadapter_test

import (
	"context"
	"os"
	"testing"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

var (
	control *controlplane.ControlPlane
	binary  string
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Name: "metric-adapter", Command: "metric-adapter",
		Plane: controlplane.Options{
			Components: []controlplane.Component{controlplane.ControllerManager},
			ExtraArgs: map[controlplane.Component][]string{controlplane.ControllerManager: {
				"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=1s",
			}},
		},
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control = c
			binary = built
			return nil
		},
	}))
}
