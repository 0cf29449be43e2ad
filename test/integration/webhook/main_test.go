// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook_test lets a real API server ask a craned that runs as a process, with the rights of config/rbac, about objects of
// every kind, and takes that craned, its certificates and its Secret away.
package webhook_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// What all tests share: starting them takes longer than any of the tests.
var (
	control *controlplane.ControlPlane
	binary  string
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(harness.Main(m, harness.Suite{
		Name: "webhook", Command: "craned",
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control, binary = c, built
			return nil
		},
	}))
}
