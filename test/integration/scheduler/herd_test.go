// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// occupy binds a pod with this request to a node, as if running for a day.
func (f *fixture) occupy(node, cpu string) {
	f.Helper()

	pod := f.pod("old-"+node, cpu, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Spec.Containers[0].Resources.Limits = nil
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
	})

	since := metav1.NewTime(time.Now().Add(-24 * time.Hour))
	pod.Status.Phase = corev1.PodRunning

	pod.Status.StartTime = &since
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}}}
	if _, err := f.client.CoreV1().Pods("default").UpdateStatus(f.Context(), pod, metav1.UpdateOptions{}); err != nil {
		f.Fatal(err)
	}
}

// TestHerd: beside the whole default profile, with uneven requests and frozen metrics, a burst of equal pods fills the one
// node that reports little load and then all nodes evenly: none ends above the mean by more than one pod. By gocrane's
// formula, whose inputs stay as they are, all of them would go to the one node.
func TestHerd(t *testing.T) {
	const nodes, burst = 10, 60
	s := startDynamic(t, "1")

	f := newFixture(t, s.scheduler)
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("herd-%d", i)
		reported := "0.50000"
		if i == 0 {
			reported = "0.10000"
		}

		f.node(names[i], 10, load(reported, 0))
		f.occupy(names[i], fmt.Sprint(1+i*7%8))
	}

	for i := range burst {
		f.pod(fmt.Sprint("burst-", i), "100m")
	}

	took := map[string]int{}
	for i := range burst {
		took[f.awaitPlaced(fmt.Sprint("burst-", i)).Spec.NodeName]++
	}

	estimate := float64(s.explained(t, fmt.Sprint("burst-", burst-1)).CPU) / 10_000
	loads := make([]float64, nodes)
	sum := 0.0
	for i, name := range names {
		loads[i] = 0.5 + float64(took[name])*estimate
		if i == 0 {
			loads[i] -= 0.4
		}

		sum += loads[i]
	}

	over := slices.Max(loads) - sum/nodes
	t.Logf("a pod is %.4f, the most loaded node is %.4f above the mean; pods by node %v", estimate, over, took)

	// The load of the first node does not depend on the burst: with fewer pods the others stay above the mean.
	if float64(burst)*estimate < 0.4 {
		t.Fatalf("a pod is %.4f, want a burst that fills the one node up", estimate)
	}

	if over > estimate {
		t.Errorf("the most loaded node is %.4f above the mean, want at most a pod, %.4f: %v", over, estimate, took)
	}
}
