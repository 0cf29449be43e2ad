// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodBecomesReady(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi", func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{} })
	w.put(p)

	if got := w.pod(p).Status; got.Phase != corev1.PodPending || got.ContainerStatuses[0].State.Waiting.Reason != "ContainerCreating" {
		t.Fatalf("status at first = %+v, want Pending and ContainerCreating", got)
	}

	w.pass(time.Second)
	if got := w.pod(p); got.Status.Phase != corev1.PodRunning || isTrue(got, corev1.PodReady) {
		t.Fatalf("after 1 s: phase %s, ready %v; want Running and not ready", got.Status.Phase, isTrue(got, corev1.PodReady))
	}

	w.pass(time.Second)
	got := w.pod(p)
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized,
		corev1.ContainersReady, corev1.PodReady,
	} {
		if !isTrue(got, kind) {
			t.Errorf("conditions = %+v, want %s to be True", got.Status.Conditions, kind)
		}
	}

	s := got.Status.ContainerStatuses[0]
	if !s.Ready || !*s.Started || s.Resources == nil || s.AllocatedResources.Cpu().String() != "500m" || s.ContainerID == "" {
		t.Errorf("container status = %+v, want ready with resources and an ID", s)
	}
	if got.Status.PodIP != "10.192.0.2" || got.Status.ObservedGeneration != 1 || got.Status.StartTime == nil {
		t.Errorf("status = %+v, want address 10.192.0.2, generation 1 and a start time", got.Status)
	}
}

func TestInitContainersRunInOrderAndSidecarsStay(t *testing.T) {
	w := newFixture(t)
	always := corev1.ContainerRestartPolicyAlways
	p := newPod("web", "500m", "256Mi", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "proxy", RestartPolicy: &always}, {Name: "second"}}
		p.Annotations = map[string]string{AnnotationDuration: "3s"}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	})

	w.put(p)
	w.pass(time.Second)

	init := w.pod(p).Status.InitContainerStatuses
	if init[0].State.Running == nil || init[1].State.Waiting == nil || init[2].State.Waiting == nil {
		t.Fatalf("init containers at first = %+v, want only first to run", init)
	}

	if got := w.pod(p).Status; got.ContainerStatuses[0].State.Waiting.Reason != "PodInitializing" || got.Phase != corev1.PodPending {
		t.Fatalf("status at first = %+v, want Pending and PodInitializing", got)
	}

	w.pass(time.Second)
	init = w.pod(p).Status.InitContainerStatuses
	if init[0].State.Terminated == nil || init[1].State.Running == nil || init[2].State.Running == nil {
		t.Fatalf("init containers after first = %+v, want proxy and second to run", init)
	}

	w.pass(2 * time.Second)
	if got := w.pod(p); !isTrue(got, corev1.PodReady) || got.Status.InitContainerStatuses[1].State.Running == nil {
		t.Fatalf("status after the init containers = %+v, want ready, with the sidecar running", got.Status)
	}

	w.pass(3 * time.Second)
	if got := w.pod(p); got.Status.Phase != corev1.PodSucceeded || got.Status.InitContainerStatuses[1].State.Terminated == nil {
		t.Fatalf("status after the app = %+v, want Succeeded, with the sidecar terminated", got.Status)
	}
}

func TestFailingInitContainerWithNever(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first"}}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	})
	w.put(p)
	w.pass(time.Second)

	if !w.node.Kill("default", "web", "first", 3, w.now) {
		t.Fatal("Kill(first) = false, want a running container")
	}

	w.pass(time.Second)
	if got := w.pod(p).Status; got.Phase != corev1.PodFailed || got.InitContainerStatuses[0].State.Terminated.ExitCode != 3 {
		t.Fatalf("status after first exited with 3 = %+v, want Failed with that code", got)
	}
}

func TestJobPodCompletes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy corev1.RestartPolicy
		code   string
		want   corev1.PodPhase
		min    int32
	}{
		{"success", corev1.RestartPolicyNever, "0", corev1.PodSucceeded, 0},
		{"failure", corev1.RestartPolicyNever, "2", corev1.PodFailed, 0},
		{"failure is tried again", corev1.RestartPolicyOnFailure, "2", corev1.PodRunning, 2},
		{"success is run again", corev1.RestartPolicyAlways, "0", corev1.PodRunning, 2},
		{"bad code is success", corev1.RestartPolicyNever, "256", corev1.PodSucceeded, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newFixture(t)
			p := newPod("job", "500m", "256Mi", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: new(true)}}
				p.Annotations = map[string]string{AnnotationDuration: "2s", AnnotationExitCode: tc.code}
				p.Spec.RestartPolicy = tc.policy
			})

			w.put(p)
			w.pass(20 * time.Second)

			got := w.pod(p).Status
			if got.Phase != tc.want || got.ContainerStatuses[0].RestartCount < tc.min {
				t.Errorf("phase %s, %d restarts; want %s and at least %d", got.Phase, got.ContainerStatuses[0].RestartCount, tc.want, tc.min)
			}
			if tc.code == "256" && w.eventCount("InvalidAnnotation") == 0 {
				t.Error("events InvalidAnnotation: 0, want one for the bad annotation")
			}
		})
	}
}

func TestBackOffDoublesAndResets(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)

	var gaps []time.Duration
	for range 4 {
		if !w.node.Kill("default", "web", "web", 1, w.now) {
			t.Fatal("Kill(web) = false, want a running container")
		}

		from := w.now
		for w.pass(100 * time.Millisecond); w.pod(p).Status.ContainerStatuses[0].State.Running == nil; {
			w.pass(100 * time.Millisecond)
		}
		gaps = append(gaps, w.now.Sub(from))
	}

	want := []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
	for i := range want {
		if gaps[i] != want[i] {
			t.Errorf("delay of restart %d = %v, want %v", i, gaps[i], want[i])
		}
	}

	w.pass(DefaultTiming().BackOffReset)
	w.node.Kill("default", "web", "web", 1, w.now)
	w.pass(300 * time.Millisecond)

	s := w.pod(p).Status.ContainerStatuses[0]
	if s.State.Running == nil || s.RestartCount != 5 || s.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("container status after a long run and a crash = %+v, want running after 5 restarts", s)
	}
}

func TestGracefulDeletion(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)
	w.update(p, func(p *corev1.Pod) {
		p.DeletionTimestamp = new(metav1.NewTime(w.now.Add(30 * time.Second)))
		p.DeletionGracePeriodSeconds = new(int64(30))
	})

	if got := w.pod(p).Status.ContainerStatuses[0]; got.State.Running == nil {
		t.Fatalf("container right after the deletion = %+v, want it to run for its grace period", got)
	}

	w.pass(time.Second)
	if len(w.api) != 0 || w.eventCount("Killing") != 1 {
		t.Fatalf("after the grace period: %d pods, %d Killing events; want 0 and 1", len(w.api), w.eventCount("Killing"))
	}

	if got := w.node.life.ips.get(); got == "" {
		t.Error("get() of the addresses = none, want the released one")
	}
}

func TestActiveDeadline(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(3)) })
	w.put(p)
	w.pass(4 * time.Second)

	if got := w.pod(p).Status; got.Phase != corev1.PodFailed || got.Reason != "DeadlineExceeded" {
		t.Fatalf("after the deadline: phase %s, reason %s; want Failed, DeadlineExceeded", got.Phase, got.Reason)
	}
}

func TestAdmissionRefusesWhatDoesNotFit(t *testing.T) {
	w := newFixture(t, func(s *NodeSpec) { s.MaxPods = 2 })
	w.put(newPod("a", "3", "1Gi"))
	b := newPod("b", "2", "1Gi")
	w.put(b)

	if got := w.pod(b).Status; got.Phase != corev1.PodFailed || got.Reason != "OutOfcpu" {
		t.Errorf("pod with too many cores: phase %s, reason %s; want Failed, OutOfcpu", got.Phase, got.Reason)
	}

	w.put(newPod("c", "500m", "1Gi"))
	d := newPod("d", "500m", "1Gi")
	w.put(d)

	if got := w.pod(d).Status; got.Reason != "OutOfpods" {
		t.Errorf("pod above the limit of pods: reason %s, want OutOfpods", got.Reason)
	}
}

func TestReadinessGate(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi", func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/gate"}}
	})
	w.put(p)
	w.pass(3 * time.Second)

	if got := w.pod(p); isTrue(got, corev1.PodReady) || !isTrue(got, corev1.ContainersReady) {
		t.Fatalf("conditions with a closed gate = %+v, want ContainersReady but not Ready", got.Status.Conditions)
	}

	w.update(p, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.org/gate", Status: corev1.ConditionTrue})
	})

	if got := w.pod(p); !isTrue(got, corev1.PodReady) || !isTrue(got, "example.org/gate") {
		t.Fatalf("conditions with an open gate = %+v, want Ready and the gate's", got.Status.Conditions)
	}
}

// A restart of the simulation does not change running pods.
func TestAdoption(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)
	w.node.Kill("default", "web", "web", 1, w.now)
	w.pass(5 * time.Second)
	before := w.pod(p)
	w.node = NewNode(w.node.spec, w.node.timing, "127.0.0.1", "10.192.0.")
	w.now = w.now.Add(time.Minute)
	w.put(before)

	after := w.pod(p)
	a := before.Status.ContainerStatuses[0]
	b := after.Status.ContainerStatuses[0]
	if b.RestartCount != a.RestartCount || b.ContainerID != a.ContainerID || !b.Ready || !isTrue(after, corev1.PodReady) ||
		after.Status.PodIP != before.Status.PodIP || !b.State.Running.StartedAt.Equal(&a.State.Running.StartedAt) {
		t.Errorf("container after a restart of the simulation = %+v, want %+v as before", b, a)
	}

	other := newPod("other", "500m", "256Mi")
	w.put(other)
	w.pass(2 * time.Second)

	if got := w.pod(other).Status.PodIP; got == before.Status.PodIP || got == "" {
		t.Errorf("address of a new pod = %q, want one other than %q", got, before.Status.PodIP)
	}
}

// A restarted simulation counts the use of running containers from its own start: an hour of it at once would be a rate of many cores.
func TestAdoptionCountsFromTheRestart(t *testing.T) {
	w := newFixture(t)
	w.load["web"] = Use{Known: true, CPU: 0.5}
	p := newPod("web", "500m", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)

	before := w.pod(p)
	w.node = NewNode(w.node.spec, w.node.timing, "127.0.0.1", "10.192.0.")
	w.now = w.now.Add(time.Hour)
	w.put(before)
	w.now = w.now.Add(10 * time.Second)
	w.measure()

	if got := w.node.State().CPUSeconds; got != 5 {
		t.Errorf("CPUSeconds ten seconds after the restart = %v, want 5", got)
	}
}

// Containers that were down when the simulation ended restart by their restart policy; terminated pods stay terminated.
func TestAdoptionOfContainersThatAreDown(t *testing.T) {
	for _, tc := range []struct {
		policy   corev1.RestartPolicy
		want     corev1.PodPhase
		restarts int32
	}{{corev1.RestartPolicyAlways, corev1.PodRunning, 3}, {corev1.RestartPolicyNever, corev1.PodFailed, 0}} {
		t.Run(string(tc.policy), func(t *testing.T) {
			w := newFixture(t)
			p := newPod("web", "500m", "256Mi", func(p *corev1.Pod) { p.Spec.RestartPolicy = tc.policy })
			w.put(p)
			w.pass(2 * time.Second)

			for range 3 { // ends in CrashLoopBackOff, or failed at once
				w.node.Kill("default", "web", "web", 1, w.now)
				w.settle(p.UID)
				before := w.pod(p)
				w.node = NewNode(w.node.spec, w.node.timing, "127.0.0.1", "10.192.0.")
				w.put(before)
				w.pass(time.Second)
			}

			got := w.pod(p).Status
			if got.Phase != tc.want || got.ContainerStatuses[0].RestartCount != tc.restarts {
				t.Errorf("phase %s, %d restarts; want %s and %d", got.Phase, got.ContainerStatuses[0].RestartCount, tc.want, tc.restarts)
			}
		})
	}
}
