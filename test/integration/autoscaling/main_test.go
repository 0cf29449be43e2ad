// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaling_test runs craned, as a process with the rights of config/rbac, beside the real HPA controller and checks the
// effects of EffectiveHorizontalPodAutoscalers. The tests set the state and usage of pods, and write the forecasts.
package autoscaling_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// Shared by all tests, because starting them takes longer than any test.
var (
	control *controlplane.ControlPlane
	binary  string
	metrics *fakeMetricsAPI
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Name: "autoscaling", Command: "craned",
		Plane: controlplane.Options{
			Components: []controlplane.Component{controlplane.ControllerManager},
			// The real HPA controller, with a sync period of 1 s instead of 15 s.
			ExtraArgs: map[controlplane.Component][]string{controlplane.ControllerManager: {
				"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=2s",
			}},
		},
		Beside: startBeside,
		Ready: func(_ context.Context, _ *controlplane.ControlPlane, built string) error {
			binary = built
			return nil
		},
	}))
}

// startBeside serves the metrics APIs and runs pods until it is stopped.
func startBeside(ctx context.Context, c *controlplane.ControlPlane) (stop func() error, err error) {
	control = c
	ctx, cancel := context.WithCancel(ctx)
	admin, err := newAdmin()
	if err == nil {
		metrics, err = serveMetrics(ctx, admin)
	}

	if err != nil {
		cancel()
		return nil, fmt.Errorf("serving metrics: %w", err)
	}

	go runPods(ctx, admin)
	return func() error { cancel(); return nil }, nil
}
