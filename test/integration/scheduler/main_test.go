// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler_test tests crane-scheduler, as a process with the RBAC rules of config/, against a real API server.
// Nodes are objects without a kubelet; each test has its own, which its pods select by label.
package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// BinaryEnv is the environment variable with the path of a built crane-scheduler.
const BinaryEnv = "CRANE_SCHEDULER"

// fieldManager is the field manager of config/.
const fieldManager = "scheduler-test"

// Shared by all tests.
var (
	control *controlplane.ControlPlane
	client  kubernetes.Interface
	binary  string
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "scheduler-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	if binary = os.Getenv(BinaryEnv); binary == "" {
		binary = filepath.Join(dir, "crane-scheduler")
		if err := build(ctx, binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	failed := 0
	status := controlplane.ForMain(m, controlplane.Options{}, func(c *controlplane.ControlPlane) {
		control = c
		if client, err = kubernetes.NewForConfig(c.Config()); err == nil {
			err = harness.Install(ctx, c.Config(), fieldManager, harness.Everything)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = 1
		}
	})
	return max(status, failed)
}

// build builds the binary without the race detector, which would compile all of kube-scheduler with it.
func build(ctx context.Context, path string) error {
	ldflags, err := os.ReadFile("../../../hack/controlplane-ldflags")
	if err != nil {
		return fmt.Errorf("build crane-scheduler: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-race=false", "-ldflags="+strings.TrimSpace(string(ldflags)), "-o", path,
		"crane.io/crane/cmd/crane-scheduler")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build crane-scheduler: %w\n%s", err, out)
	}
	return nil
}
