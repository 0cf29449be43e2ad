// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeload_test runs craned with the controllers of node load and of rebalancing alone, as a process with the
// rights of config/rbac, against a real API server and a real Prometheus. Nodes and pods are objects without a kubelet.
package nodeload_test

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
		Name: "nodeload", Command: "craned",
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control, binary = c, built
			return nil
		},
	}))
}
