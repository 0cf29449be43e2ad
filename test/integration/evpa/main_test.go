// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evpa_test runs craned with vertical autoscaling, adoption and its webhook for new pods, as a process with the rights of
// config/rbac, against a real API server, controller manager and scheduler, and simulated nodes. History comes from files.
package evpa_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
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
	load    = &podLoad{greedyNamespaces: map[string]bool{}}
)

// podLoad is the load of every container: a hundredth of a core and 20 MiB, or 200 MiB in a greedy namespace.
type podLoad struct {
	mu               sync.Mutex
	greedyNamespaces map[string]bool
}

// Use implements simnode.Load.
func (d *podLoad) Use(pod *corev1.Pod, _ string, _ time.Time) simnode.Use {
	d.mu.Lock()
	defer d.mu.Unlock()

	use := simnode.Use{CPU: 0.01, Memory: 20 << 20, Known: true}
	if d.greedyNamespaces[pod.Namespace] {
		use.Memory = 200 << 20
	}

	return use
}

// overload makes the containers of a namespace use 200 MiB; relieve undoes it.
func (d *podLoad) overload(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.greedyNamespaces[namespace] = true
}

func (d *podLoad) relieve(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	delete(d.greedyNamespaces, namespace)
}

func nodes() []simnode.NodeSpec {
	node := func(name, pool, cpu, memory string) simnode.NodeSpec {
		return simnode.NodeSpec{
			Name: name, CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory), Labels: map[string]string{"pool": pool, "node": name},
		}
	}

	return []simnode.NodeSpec{
		node("wide-1", "wide", "64", "128Gi"), node("wide-2", "wide", "64", "128Gi"), node("tight", "tight", "2", "4Gi"), node("roomy", "tight", "16", "32Gi"),
	}
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(harness.Main(m, harness.Suite{
		Name: "evpa", Command: "craned", Parallel: 16,
		Plane:  controlplane.Options{Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler}},
		Beside: fleet.Beside(simnode.Config{Nodes: nodes(), Load: load, Sample: time.Second, Heartbeat: 2 * time.Second}),
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control = c
			binary = built
			var err error
			admin, err = harness.NewClient(c.Config(), analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme,
				apiextensionsv1.AddToScheme)

			return err
		},
	}))
}
