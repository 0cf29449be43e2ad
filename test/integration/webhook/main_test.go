// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook_test lets a real API server ask a craned that runs as a process, with the rights of config/rbac, about objects of
// every kind, and takes that craned, its certificates and its Secret away.
package webhook_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/controlplane"
	"crane.io/crane/test/integration/harness"
)

// What all tests share: starting them takes longer than any of the tests.
var (
	control *controlplane.ControlPlane
	binary  string
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "webhook-test-")
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
		if err := harness.Install(ctx, c.Config(), fieldManager, harness.Everything); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = 1
		}
	})
	return max(status, failed)
}
