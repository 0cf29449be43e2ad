// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaling_test runs craned, as a process with the rights of config/rbac, beside the real HPA controller, and looks at
// what becomes of EffectiveHorizontalPodAutoscalers. Pods run because the test says so, use what it says, and their forecasts
// are those that it writes.
package autoscaling_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"crane.io/crane/internal/controlplane"
	"crane.io/crane/test/integration/harness"
)

// What all tests share: starting them takes longer than any of the tests.
var (
	control *controlplane.ControlPlane
	binary  string
	metrics *metricsAPI
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "autoscaling-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "craned")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := harness.Build(ctx, binary, "craned"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	failed := 0
	status := controlplane.ForMain(m, controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager},
		// The real HPA controller, fifteen times as fast.
		ExtraArgs: map[controlplane.Component][]string{controlplane.ControllerManager: {
			"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=2s",
		}},
	}, func(c *controlplane.ControlPlane) {
		control = c
		if err := prepare(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = 1
		}
	})
	return max(status, failed)
}

func prepare(ctx context.Context) error {
	// Admission has tests of its own, and the metrics APIs are served by this process.
	wanted := func(kind string) bool {
		return kind != "MutatingWebhookConfiguration" && kind != "ValidatingWebhookConfiguration" && kind != "APIService"
	}
	if err := harness.Install(ctx, control.Config(), "autoscaling-test", wanted); err != nil {
		return err
	}
	c, err := administrator()
	if err != nil {
		return err
	}
	if metrics, err = serveMetrics(ctx, c); err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	go runPods(ctx, c)
	return nil
}
