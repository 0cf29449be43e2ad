// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent_test runs crane-agent as a process with the rights of config/rbac against a real API server, on the recorded files of a
// host. Nodes and pods are objects without a kubelet; what a kernel does is test/e2e's.
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
			control, binary = c, built
			// It runs in the one test that places a pod: it would not outlive the outages of others.
			return c.StopComponent(ctx, controlplane.Scheduler)
		},
	}))
}
