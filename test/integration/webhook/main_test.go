// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook_test tests the webhooks of craned, as a process with the rights of config/rbac, behind a real API server: every
// kind of object, outages of craned, and the rotation of certificates.
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

// Shared by all tests, because the start takes longer than a test.
var (
	control *controlplane.ControlPlane
	binary  string
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(harness.Main(m, harness.Suite{
		Name: "webhook", Command: "craned",
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control = c
			binary = built
			return nil
		},
	}))
}
