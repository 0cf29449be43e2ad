// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption_test runs craned with adoption and the OOM recorder, as a process with the rights of config/rbac, against
// a real API server, controller manager and scheduler, and simulated nodes that resize and kill as kubelets do.
package adoption_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/integration/harness/fleet"
)

// What all tests share.
var (
	control *controlplane.ControlPlane
	binary  string
	admin   client.Client
	load    = &dial{set: map[string]simnode.Use{}}
)

// dial is a load that tests set by namespace.
type dial struct {
	mu  sync.Mutex
	set map[string]simnode.Use
}

// Use implements simnode.Load; what is not set uses a hundredth of a core and 20 MiB.
func (d *dial) Use(pod *corev1.Pod, _ string, _ time.Time) simnode.Use {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range []string{pod.Namespace + "/" + pod.Name, pod.Namespace} {
		if u, ok := d.set[key]; ok {
			return u
		}
	}
	return simnode.Use{CPU: 0.01, Memory: 20 << 20, Known: true}
}

// turn sets what the pods of a namespace, or one pod of it, use.
func (d *dial) turn(key string, memory float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set[key] = simnode.Use{CPU: 0.01, Memory: memory, Known: true}
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
			control, binary = c, built
			scheme := runtime.NewScheme()
			err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme))
			if err != nil {
				return err
			}
			admin, err = client.New(c.Config(), client.Options{Scheme: scheme})
			return err
		},
	}))
}
