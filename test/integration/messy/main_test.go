// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package messy_test adopts the workloads of package messy on a real API server, controller manager and scheduler with simulated nodes, and
// checks that adoption does no harm. craned's adoption and its pod webhook run in this process, with a clock that jumps over the waits. CRANE_MESSY is the time
// of a long run.
package messy_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/integration/harness/fleet"
)

// Shared by all tests.
var (
	control   *controlplane.ControlPlane
	simulated *simnode.Fleet
	admin     client.Client
)

// idle is the load of every container.
type idle struct{}

// Use implements simnode.Load.
func (idle) Use(*corev1.Pod, string, time.Time) simnode.Use {
	return simnode.Use{CPU: 0.01, Memory: 20 << 20, Known: true}
}

// nodes returns two nodes that have room for all pods, and one without for most.
func nodes() []simnode.NodeSpec {
	node := func(name, cpu, memory string) simnode.NodeSpec {
		return simnode.NodeSpec{Name: name, CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory), MaxPods: 250}
	}

	return []simnode.NodeSpec{node("wide-1", "1000", "4Ti"), node("wide-2", "1000", "4Ti"), node("tight", "24", "64Gi")}
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(harness.Main(m, harness.Suite{
		Name:  "messy",
		Plane: controlplane.Options{Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler}},
		Beside: func(ctx context.Context, c *controlplane.ControlPlane) (func() error, error) {
			config := simnode.Config{Client: c.Config(), Nodes: nodes(), Load: idle{}, Timing: simnode.DefaultTiming(), Sample: 2 * time.Second, Heartbeat: 5 * time.Second}
			config.Timing.Create = 100 * time.Millisecond
			config.Timing.Ready = 100 * time.Millisecond
			started, stop, err := fleet.Start(ctx, config)
			simulated = started
			return stop, err
		},
		Ready: func(_ context.Context, c *controlplane.ControlPlane, _ string) error {
			control = c
			scheme, err := newScheme()
			if err != nil {
				return err
			}

			admin, err = client.New(c.Config(), client.Options{Scheme: scheme})
			return err
		},
	}))
}
