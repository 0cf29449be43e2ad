// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler_test tests crane-scheduler, as a process with the RBAC rules of config/, against a real API server.
// Nodes are objects without a kubelet; each test has its own, which its pods select by label.
package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// Shared by all tests.
var (
	control *controlplane.ControlPlane
	client  kubernetes.Interface
	binary  string
)

func TestMain(m *testing.M) {
	ldflags, err := os.ReadFile("../../../hack/controlplane-ldflags")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(harness.Main(m, harness.Suite{
		Name: "scheduler", Command: "crane-scheduler", BinaryEnv: "CRANE_SCHEDULER",
		// The race detector would need all of kube-scheduler to be compiled again.
		BuildFlags: []string{"-race=false", "-ldflags=" + strings.TrimSpace(string(ldflags))},
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) (err error) {
			control = c
			binary = built
			client, err = kubernetes.NewForConfig(c.Config())

			return err
		},
	}))
}
