// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeload_test tests the controllers of node load and rebalancing in craned, as a process with the RBAC rules
// of config/, against a real API server and a real Prometheus. Nodes and pods are objects without a kubelet.
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
			control = c
			binary = built
			return nil
		},
	}))
}
