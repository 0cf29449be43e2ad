// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/test/e2e/node"
)

// TestCrashWhileThrottled checks on a real node that the successor of a throttled container that crashes starts at the first attempt, like that
// of a container that is not throttled, and is throttled itself only then. On cgroup v1 the kernel accepts no quota above the pod's.
func TestCrashWhileThrottled(t *testing.T) {
	f := newFixture(t, node.Options{})
	small, whole := node.Resources("20m", ""), node.Resources("1", "")
	hog := f.hog(t, "hog", "2", small, whole)
	bystander := f.Run(t, f.Pod("bystander", "cpu-hog", []string{"-threads", "2", "-switch", signal}, small, whole))
	f.apply(t, throttleRules)
	f.deploy(t, enforceThrottle()...)
	f.turn(t, hog, true)
	f.awaitThrottled(t, hog)

	f.crash(t, hog)
	f.crash(t, bystander)
	next, down := f.awaitRestarted(t, hog)
	_, usual := f.awaitRestarted(t, bystander)
	t.Logf("the throttled container was down for %s, the other one for %s", down, usual)

	// The successor has a switch of its own.
	f.turn(t, next, true)
	f.awaitThrottled(t, next)
	f.turn(t, next, false)
	f.Eventually(t, "the limit of the pod and of the successor is the kubelet's", func() error {
		cgroups := f.Cgroups(t)
		ofPod, err := cgroups.PodLimits(t, next)
		ofContainer, other := cgroups.ContainerLimits(t, next)
		if err := errors.Join(err, other); err != nil {
			return err
		}

		if ofPod.Cores != 1 || ofContainer.Cores != 1 {
			return fmt.Errorf("limits are %+v and %+v, want 1 core", ofPod, ofContainer)
		}

		return nil
	})
}

// crash kills the processes of a pod's container on a node in namespaces.
func (f fixture) crash(t testing.TB, pod *corev1.Pod) {
	t.Helper()

	content, err := os.ReadFile(f.file("cpu", "cgroup.procs", pod))
	if err != nil {
		t.Fatal(err)
	}

	fields := strings.Fields(string(content))
	if len(fields) == 0 {
		t.Fatalf("the container of %s has no process, want one", pod.Name)
	}

	for _, field := range fields {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 1 {
			t.Fatalf("process of %s is %q, %v, want a number above 1", pod.Name, field, err)
		}

		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("killing process %d of %s: %v", pid, pod.Name, err)
		}
	}
}

// awaitRestarted waits until a pod's container runs again and returns the pod with the time between. A start that failed fails the test.
func (f fixture) awaitRestarted(t testing.TB, pod *corev1.Pod) (*corev1.Pod, time.Duration) {
	t.Helper()

	next := f.Await(t, pod, "runs again", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount > 0 && s.State.Running != nil && s.LastTerminationState.Terminated != nil
	})

	status := next.Status.ContainerStatuses[0]
	if status.RestartCount != 1 {
		t.Errorf("%s runs after %d restarts, want the first to succeed: %+v", pod.Name, status.RestartCount, status.LastTerminationState.Terminated)
	}

	events, err := f.Client.CoreV1().Events(pod.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Failed,involvedObject.name=" + pod.Name})
	if err != nil {
		t.Fatal(err)
	}

	for i := range events.Items {
		t.Errorf("event of %s: %s, want no failed start", pod.Name, events.Items[i].Message)
	}

	return next, status.State.Running.StartedAt.Sub(status.LastTerminationState.Terminated.FinishedAt.Time)
}
