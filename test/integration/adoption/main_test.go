// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption_test runs craned with adoption and the OOM recorder, as a process with the rights of config/rbac, against
// a real API server, controller manager and scheduler, and simulated nodes that resize and OOM-kill containers like kubelets.
package adoption_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/integration/harness/fleet"
)

// Shared by all tests.
var (
	control *controlplane.ControlPlane
	binary  string
	admin   client.Client
	load    = &podLoad{memory: map[string]float64{}}
)

// podLoad is the load of every container: 0.01 cores, and the memory that a test sets, or 20 MiB.
type podLoad struct {
	mu     sync.Mutex
	memory map[string]float64 // in bytes by namespace or namespace/pod
}

// Use implements simnode.Load.
func (l *podLoad) Use(pod *corev1.Pod, _ string, _ time.Time) simnode.Use {
	l.mu.Lock()
	defer l.mu.Unlock()

	use := simnode.Use{CPU: 0.01, Memory: 20 << 20, Known: true}
	for _, key := range []string{pod.Namespace, pod.Namespace + "/" + pod.Name} {
		if bytes, ok := l.memory[key]; ok {
			use.Memory = bytes
		}
	}

	return use
}

// set sets the memory in bytes of the containers of a namespace, or of a pod as namespace/pod.
func (l *podLoad) set(key string, bytes float64) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.memory[key] = bytes
}

func nodes() []simnode.NodeSpec {
	node := func(name, pool, cpu, memory string) simnode.NodeSpec {
		return simnode.NodeSpec{
			Name: name, CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory), Labels: map[string]string{"pool": pool},
		}
	}

	return []simnode.NodeSpec{node("wide-1", "wide", "64", "128Gi"), node("wide-2", "wide", "64", "128Gi"), node("tight", "tight", "2", "4Gi")}
}

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Name: "adoption", Command: "craned", Parallel: 8,
		Plane:  controlplane.Options{Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler}},
		Beside: fleet.Beside(simnode.Config{Nodes: nodes(), Load: load, Sample: 300 * time.Millisecond, Heartbeat: 2 * time.Second}),
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control = c
			binary = built
			var err error
			admin, err = harness.NewClient(c.Config(), analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme)

			return err
		},
	}))
}
