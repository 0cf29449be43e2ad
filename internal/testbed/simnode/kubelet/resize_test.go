// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// want returns a function that sets requests and limits of the pod's only container.
func want(cpu, memory string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
	}
}

func inForce(p *corev1.Pod) (cpu, memory string, restarts int32) {
	s := p.Status.ContainerStatuses[0]
	return s.Resources.Limits.Cpu().String(), s.Resources.Limits.Memory().String(), s.RestartCount
}

func reasonOf(p *corev1.Pod, kind corev1.PodConditionType) string {
	c := findCondition(p.Status.Conditions, kind)
	if c == nil {
		return "none"
	}

	return c.Reason
}

func TestResizeIsAdmittedThenApplied(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)
	w.update(p, want("1", "512Mi"))

	got := w.pod(p)
	if cpu, _, _ := inForce(got); cpu != "500m" || reasonOf(got, corev1.PodResizeInProgress) != "" ||
		got.Status.ContainerStatuses[0].AllocatedResources.Cpu().String() != "1" {
		t.Fatalf("status right after the resize = %+v, want 1 core allocated, 500m in effect", got.Status)
	}

	w.pass(300 * time.Millisecond)
	got = w.pod(p)
	if cpu, memory, restarts := inForce(got); cpu != "1" || memory != "512Mi" || restarts != 0 || reasonOf(got, corev1.PodResizeInProgress) != "none" {
		t.Fatalf("status after 300 ms = %+v, want 1 core and 512Mi in effect without a restart", got.Status)
	}

	if w.eventCount("ResizeStarted") != 1 || w.eventCount("ResizeCompleted") != 1 || got.Status.ObservedGeneration != 2 {
		t.Errorf("events %+v, generation %d; want ResizeStarted and ResizeCompleted once, and 2", w.seen, got.Status.ObservedGeneration)
	}
}

func TestResizeDeferredOrder(t *testing.T) {
	w := newFixture(t) // 4 cores
	hold := newPod("hold", "1", "256Mi")
	low := newPod("low", "1", "256Mi", func(p *corev1.Pod) { p.Spec.Priority = new(int32(1)) })
	high := newPod("high", "1", "256Mi", func(p *corev1.Pod) { p.Spec.Priority = new(int32(2)) })
	for _, p := range []*corev1.Pod{hold, low, high} {
		w.put(p)
	}

	w.pass(2 * time.Second)
	w.update(low, want("2500m", "256Mi"))
	w.pass(time.Second)
	w.update(high, want("2500m", "256Mi"))

	for _, p := range []*corev1.Pod{low, high} {
		if got := reasonOf(w.pod(p), corev1.PodResizePending); got != corev1.PodReasonDeferred {
			t.Fatalf("PodResizePending of %s = %s, want %s", p.Name, got, corev1.PodReasonDeferred)
		}
	}

	since := findCondition(w.pod(low).Status.Conditions, corev1.PodResizePending).LastTransitionTime
	w.update(hold, want("500m", "256Mi"))
	w.pass(time.Second)

	if cpu, _, _ := inForce(w.pod(high)); cpu != "2500m" {
		t.Errorf("CPU of high = %s, want 2500m: it goes first", cpu)
	}

	got := w.pod(low)
	if cpu, _, _ := inForce(got); cpu != "1" || reasonOf(got, corev1.PodResizePending) != corev1.PodReasonDeferred {
		t.Errorf("CPU of low = %s, PodResizePending %s; want 1 and %s", cpu, reasonOf(got, corev1.PodResizePending), corev1.PodReasonDeferred)
	}
	if now := findCondition(got.Status.Conditions, corev1.PodResizePending).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("time of the unchanged condition = %s, want %s", now, since)
	}

	w.update(high, func(p *corev1.Pod) {
		p.DeletionTimestamp = &since
		p.DeletionGracePeriodSeconds = new(int64(30))
	})
	w.pass(2 * time.Second)

	if cpu, _, _ := inForce(w.pod(low)); cpu != "2500m" {
		t.Errorf("CPU of low after resources were freed = %s, want 2500m", cpu)
	}
}

func TestResizeInfeasibleAndReverted(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "1", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)
	w.update(p, want("5", "256Mi"))

	if got := w.pod(p); reasonOf(got, corev1.PodResizePending) != corev1.PodReasonInfeasible ||
		!strings.Contains(findCondition(got.Status.Conditions, corev1.PodResizePending).Message, "cpu, requested: 5, capacity: 4") {
		t.Fatalf("conditions = %+v, want PodResizePending with Infeasible and the capacity", got.Status.Conditions)
	}

	w.pass(time.Second)
	if w.eventCount("ResizeInfeasible") != 1 {
		t.Errorf("events ResizeInfeasible: %d, want 1", w.eventCount("ResizeInfeasible"))
	}

	w.update(p, want("1", "256Mi"))
	if got := reasonOf(w.pod(p), corev1.PodResizePending); got != "none" {
		t.Errorf("PodResizePending after the spec was reverted = %s, want none", got)
	}
}

func TestStaticCPUPolicyMakesCPUResizeInfeasible(t *testing.T) {
	w := newFixture(t, func(s *NodeSpec) { s.StaticCPU = true })
	p := newPod("web", "1", "256Mi")
	b := newPod("burst", "1", "256Mi", burstable(false, 0))
	w.put(p)
	w.put(b)
	w.pass(2 * time.Second)
	w.update(p, want("2", "256Mi"))
	w.update(b, want("1500m", "256Mi"))
	w.pass(time.Second)

	if got := reasonOf(w.pod(p), corev1.PodResizePending); got != corev1.PodReasonInfeasible {
		t.Errorf("PodResizePending of the Guaranteed pod = %s, want %s", got, corev1.PodReasonInfeasible)
	}
	if cpu, _, _ := inForce(w.pod(b)); cpu != "1500m" {
		t.Errorf("CPU of the Burstable pod = %s, want 1500m", cpu)
	}
}

func TestMemoryShrinkBelowUseWaits(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "512Mi")
	w.put(p)
	w.pass(2 * time.Second)
	w.load["web"] = Use{CPU: 0.1, Memory: 300 << 20, Known: true}
	w.measure()
	w.update(p, want("600m", "256Mi"))
	w.pass(time.Second)

	got := w.pod(p)
	if cpu, memory, _ := inForce(got); cpu != "500m" || memory != "512Mi" || reasonOf(got, corev1.PodResizeInProgress) != corev1.PodReasonError {
		t.Fatalf("in effect %s, %s, PodResizeInProgress %s; want 500m, 512Mi and an error", cpu, memory, reasonOf(got, corev1.PodResizeInProgress))
	}

	w.load["web"] = Use{CPU: 0.1, Memory: 200 << 20, Known: true}
	w.measure()

	got = w.pod(p)
	if cpu, memory, _ := inForce(got); cpu != "600m" || memory != "256Mi" || reasonOf(got, corev1.PodResizeInProgress) != "none" {
		t.Errorf("in effect %s, %s, PodResizeInProgress %s; want 600m, 256Mi and none", cpu, memory, reasonOf(got, corev1.PodResizeInProgress))
	}
	if w.eventCount("ResizeError") != 1 {
		t.Errorf("events ResizeError: %d, want 1", w.eventCount("ResizeError"))
	}
}

func TestResizePolicyRestartsContainer(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi", func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	})
	w.put(p)
	w.pass(2 * time.Second)
	w.load["web"] = Use{Memory: 200 << 20, Known: true}
	w.measure()
	w.update(p, want("600m", "256Mi"))
	w.pass(time.Second)

	if cpu, _, restarts := inForce(w.pod(p)); cpu != "600m" || restarts != 0 {
		t.Errorf("after the resize of CPU: %s, %d restarts; want 600m and 0", cpu, restarts)
	}

	w.update(p, want("600m", "128Mi"))
	w.pass(2 * time.Second)

	if _, memory, restarts := inForce(w.pod(p)); memory != "128Mi" || restarts != 1 {
		t.Errorf("after the resize of memory: %s, %d restarts; want 128Mi and 1, as a restart may go below the use", memory, restarts)
	}
}

func TestResizeSurvivesRestartOfTheSimulation(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "2", "256Mi")
	q := newPod("other", "2", "256Mi")
	w.put(p)
	w.put(q)
	w.pass(2 * time.Second)

	w.update(p, want("3", "256Mi"))
	before := w.pod(p)
	w.node = NewNode(w.node.spec, w.node.timing, "127.0.0.1", "10.192.0.")
	w.node.Observe(before, w.now)
	w.node.Observe(w.pod(q), w.now)
	w.settle(p.UID)

	got := w.pod(p)
	if cpu, _, _ := inForce(got); cpu != "2" || reasonOf(got, corev1.PodResizePending) != corev1.PodReasonDeferred {
		t.Errorf("in effect %s, PodResizePending %s; want 2 and Deferred", cpu, reasonOf(got, corev1.PodResizePending))
	}
}
