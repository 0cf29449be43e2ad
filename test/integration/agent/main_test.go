// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent_test runs crane-agent as a process with the permissions of config/rbac against a real API server and the recorded files of
// a host. Nodes and pods have no kubelet; test/e2e tests the kernel.
package agent_test

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
		Name: "agent", Command: "crane-agent",
		Plane: controlplane.Options{Components: []controlplane.Component{controlplane.Scheduler}},
		Ready: func(ctx context.Context, c *controlplane.ControlPlane, built string) error {
			control = c
			binary = built

			// It runs only in the test that places a pod, because it would not survive the outages of others.
			return c.StopComponent(ctx, controlplane.Scheduler)
		},
	}))
}
