// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/test/e2e/node"
)

// enforceThrottle returns flags that throttle fast enough for a test.
func enforceThrottle() []string {
	return []string{"--enforce=cpu-throttle", "--collect-interval=250ms"}
}

// TestThrottle checks on a real node that a pod is throttled and restored, also at the end of the agent, that the agent survives restarts
// of kubelet and runtime, and that other pods are never changed.
func TestThrottle(t *testing.T) {
	testThrottle(t, newFixture(t, node.Options{Restart: true}))
}

func testThrottle(t *testing.T, s fixture) {
	hog := s.hog(t, "hog", "2", nil, nil)
	bystander := s.bystander(t)
	before := s.settings(t)
	s.apply(t, throttleRules)
	t.Run("and-restore", func(t *testing.T) {
		s.deploy(t, enforceThrottle()...)
		s.turn(t, hog, true)
		s.awaitThrottled(t, hog)
		s.onlyOf(t, hog, before)
		s.turn(t, hog, false)
		s.awaitAsBefore(t, before)
	})
	t.Run("undone-when-the-agent-is-deleted", func(t *testing.T) {
		d := s.deploy(t, enforceThrottle()...)
		s.turn(t, hog, true)
		s.awaitThrottled(t, hog)
		d.remove(t)
		s.awaitAsBefore(t, before)
		s.turn(t, hog, false)
	})
	t.Run("while-kubelet-and-runtime-restart", func(t *testing.T) {
		d := s.deploy(t, enforceThrottle()...)
		s.turn(t, hog, true)
		s.awaitThrottled(t, hog)
		for _, program := range []string{"kubelet", s.Runtime()} {
			if err := s.Kill(program); err != nil {
				t.Fatal(err)
			}
			// Only a working kubelet and runtime can start it.
			s.Delete(t, s.Run(t, s.Pod("after-"+program, "pause", nil, nil, nil)))
			s.awaitThrottled(t, hog)
			s.onlyOf(t, hog, before)
		}
		if err := d.sameProcess(t); err != nil {
			t.Error(err)
		}
		s.turn(t, hog, false)
		s.awaitAsBefore(t, before)
		after := s.Await(t, bystander, "is there", func(*corev1.Pod) bool { return true })
		if after.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the bystander was restarted: %+v", after.Status)
		}
	})
}

// onlyOf checks that only settings of the pod have changed.
func (s fixture) onlyOf(t testing.TB, pod *corev1.Pod, before map[string]string) {
	t.Helper()
	others := slices.DeleteFunc(changes(before, s.settings(t)), func(c string) bool { return strings.Contains(c, "/pod"+string(pod.UID)+"/") })
	if len(others) > 0 {
		t.Errorf("beside %s: %s", pod.Name, strings.Join(others, "; "))
	}
}

// sameProcess returns an error if the agent was restarted.
func (d *deployment) sameProcess(t testing.TB) error {
	t.Helper()
	now, err := d.Client.CoreV1().Pods(d.pod.Namespace).Get(t.Context(), d.pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if was, is := d.pod.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]; is.RestartCount != was.RestartCount || is.ContainerID != was.ContainerID {
		return fmt.Errorf("the agent was restarted: %+v", is)
	}
	return nil
}
