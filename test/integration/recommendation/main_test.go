// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recommendation_test runs the recommendation controllers in the test process against a real API server, with a given
// history and with faults of the API server. Package craned_test tests craned as a process.
package recommendation_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

var control *controlplane.ControlPlane

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(harness.Main(m, harness.Suite{
		Name:  "recommendation",
		Kinds: func(kind string) bool { return kind == "CustomResourceDefinition" || kind == "Namespace" },
		Ready: func(_ context.Context, c *controlplane.ControlPlane, _ string) error {
			control = c
			return nil
		},
	}))
}
