// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/test/integration/harness"
)

// resize changes requests and limits of container "app" through the resize subresource.
func resize(t *testing.T, namespace, name, cpu, memory string) {
	t.Helper()

	list := harness.ResourceList(cpu, memory)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "app", "resources": corev1.ResourceRequirements{Requests: list, Limits: list},
	}}}})
	if err != nil {
		t.Fatal(err)
	}

	_, err = cluster.client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
	if err != nil {
		t.Fatalf("resizing %s: %v", name, err)
	}
}

// applied returns a check that the pod's container has the CPU and memory in effect and no pending resize.
func applied(cpu, memory string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].Resources == nil {
			return false
		}

		s := p.Status.ContainerStatuses[0]
		want := harness.ResourceList(cpu, memory)
		return s.Resources.Limits.Cpu().Equal(want[corev1.ResourceCPU]) && s.Resources.Limits.Memory().Equal(want[corev1.ResourceMemory]) &&
			s.AllocatedResources.Cpu().Equal(want[corev1.ResourceCPU]) && p.Status.ObservedGeneration == p.Generation &&
			condition(p, corev1.PodResizePending) == nil && condition(p, corev1.PodResizeInProgress) == nil
	}
}

func pending(reason string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		c := condition(p, corev1.PodResizePending)
		return c != nil && c.Reason == reason && c.ObservedGeneration == p.Generation
	}
}

func TestResizeInPlace(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "web", "general", "200m", "128Mi"))
	podUntil(t, ns, "web", "Ready", ready)
	resize(t, ns, "web", "500m", "256Mi")

	pod := podUntil(t, ns, "web", "resized", applied("500m", "256Mi"))
	if s := pod.Status.ContainerStatuses[0]; s.RestartCount != 0 || !ready(pod) {
		t.Errorf("container status %+v, want it ready without a restart", s)
	}

	cluster.load.use(ns, "app", 0.1, 200<<20)
	// The node rejects limits below the use only after it has sampled it.
	eventuallyUsed(t, ns, 1, 200<<20)
	resize(t, ns, "web", "500m", "128Mi")
	podUntil(t, ns, "web", "shrink refused below the use", func(p *corev1.Pod) bool {
		c := condition(p, corev1.PodResizeInProgress)
		return c != nil && c.Reason == corev1.PodReasonError && p.Status.ContainerStatuses[0].Resources.Limits.Memory().Value() == 256<<20
	})
	cluster.load.use(ns, "app", 0.1, 20<<20)
	podUntil(t, ns, "web", "shrunk", applied("500m", "128Mi"))
}

func TestResizeRestartsWhereThePolicySaysSo(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "web", "general", "200m", "128Mi", func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}))
	podUntil(t, ns, "web", "Ready", ready)
	resize(t, ns, "web", "300m", "128Mi")

	if pod := podUntil(t, ns, "web", "CPU resized", applied("300m", "128Mi")); pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("a CPU resize restarted it, want no restart")
	}

	resize(t, ns, "web", "300m", "192Mi")
	podUntil(t, ns, "web", "restarted with more memory", func(p *corev1.Pod) bool {
		return applied("300m", "192Mi")(p) && p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p)
	})
}

func TestResizeDeferredUntilThereIsRoom(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "first", "tight", "900m", "128Mi"))
	create(t, podIn(ns, "second", "tight", "900m", "128Mi"))
	podUntil(t, ns, "first", "Ready", ready)
	podUntil(t, ns, "second", "Ready", ready)
	resize(t, ns, "first", "1500m", "128Mi")

	pod := podUntil(t, ns, "first", "Deferred", pending(corev1.PodReasonDeferred))
	if got := pod.Status.ContainerStatuses[0].Resources.Limits.Cpu().String(); got != "900m" {
		t.Errorf("CPU limit in force is %s, want 900m", got)
	}

	resize(t, ns, "second", "400m", "128Mi")
	podUntil(t, ns, "second", "shrunk", applied("400m", "128Mi"))
	podUntil(t, ns, "first", "applied after room was made", applied("1500m", "128Mi"))
}

func TestResizeInfeasible(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "pinned", "static", "1", "128Mi"))
	podUntil(t, ns, "pinned", "Ready", ready)
	resize(t, ns, "pinned", "2", "128Mi")
	podUntil(t, ns, "pinned", "Infeasible", pending(corev1.PodReasonInfeasible))
	resize(t, ns, "pinned", "1", "128Mi")
	podUntil(t, ns, "pinned", "as it was", applied("1", "128Mi"))
	resize(t, ns, "pinned", "1", "256Mi")
	podUntil(t, ns, "pinned", "memory may change", applied("1", "256Mi"))
}
