// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeload_test runs craned with the controllers of node load and of rebalancing alone, as a process with the
// rights of config/rbac, against a real API server and a real Prometheus. Nodes and pods are objects without a kubelet.
package nodeload_test

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
	dir, err := os.MkdirTemp("", "nodeload-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "craned")
	ctx := context.Background()
	if err := harness.Build(ctx, binary, "craned"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	failed := 0
	status := controlplane.ForMain(m, controlplane.Options{}, func(c *controlplane.ControlPlane) {
		control = c
		if err := harness.Install(ctx, c.Config(), "nodeload-test", harness.Everything); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = 1
		}
	})
	return max(status, failed)
}
