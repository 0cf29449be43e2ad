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
	"k8s.io/apimachinery/pkg/types"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
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

func testThrottle(t *testing.T, f fixture) {
	hog := f.hog(t, "hog", "2", nil, nil)
	bystander := f.bystander(t)
	before := f.Settings(t)
	f.apply(t, throttleRules)

	t.Run("and-restore", func(t *testing.T) {
		f.deploy(t, enforceThrottle()...)
		f.turn(t, hog, true)
		f.awaitThrottled(t, hog)
		f.onlyOf(t, hog, before)
		f.turn(t, hog, false)
		f.awaitAsBefore(t, before)
	})

	t.Run("undone-when-the-agent-is-deleted", func(t *testing.T) {
		d := f.deploy(t, enforceThrottle()...)
		f.turn(t, hog, true)
		f.awaitThrottled(t, hog)
		d.remove(t)
		f.awaitAsBefore(t, before)
		f.turn(t, hog, false)
	})

	t.Run("quotas-that-gocrane-left-are-restored", func(t *testing.T) { f.restoreLeftQuotas(t, before, hog, bystander) })
	t.Run("while-kubelet-and-runtime-restart", func(t *testing.T) {
		d := f.deploy(t, enforceThrottle()...)
		f.turn(t, hog, true)
		f.awaitThrottled(t, hog)

		for _, program := range []string{"kubelet", f.Runtime()} {
			if err := f.Kill(program); err != nil {
				t.Fatal(err)
			}

			// Only a working kubelet and runtime can start it.
			f.Delete(t, f.Run(t, f.Pod("after-"+program, "pause", nil, nil, nil)))
			f.awaitThrottled(t, hog)
			f.onlyOf(t, hog, before)
		}

		if err := d.sameProcess(t); err != nil {
			t.Error(err)
		}

		f.turn(t, hog, false)
		f.awaitAsBefore(t, before)

		after := f.Await(t, bystander, "is there", func(*corev1.Pod) bool { return true })
		if after.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the bystander was restarted: %+v, want no restart of it", after.Status)
		}
	})
}

// restoreLeftQuotas lowers the CPU quotas of pods, as gocrane's agent leaves them, and records that on the Node, as crane migrate does: an agent that
// does not enforce leaves both, one that enforces restores the quotas and removes the record.
func (f fixture) restoreLeftQuotas(t *testing.T, before map[string]string, pods ...*corev1.Pod) {
	t.Helper()

	cgroups := f.Cgroups(t)
	for _, pod := range pods {
		name, quota := "cpu.max", "20000 100000"
		if f.Cgroup() == 1 {
			name, quota = "cpu.cfs_quota_us", "20000"
		}

		file := cgroups.Dir("cpu") + strings.TrimPrefix(node.Group(pod), "kubepods") + "/" + name
		if err := cgroups.Write(t, file, quota); err != nil {
			t.Fatal(err)
		}
	}

	noted := func() (bool, error) {
		n, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		_, ok := n.Annotations[ensurancev1alpha1.AnnotationPredecessor]
		return ok, nil
	}

	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, ensurancev1alpha1.AnnotationPredecessor, ensurancev1alpha1.PredecessorGocrane)
	if _, err := f.Client.CoreV1().Nodes().Patch(t.Context(), f.Name(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	idle := f.deploy(t, "--enforce=taint", "--collect-interval=250ms")
	f.Eventually(t, "the agent names the quotas", func() error {
		logs, err := f.Logs(t, idle.pod)
		if err == nil && !strings.Contains(logs, "CPU quotas that gocrane's agent left stay") {
			err = fmt.Errorf("log %s", logs)
		}

		return err
	})

	if lowered := node.ChangedSettings(before, f.Settings(t)); len(lowered) != len(pods) {
		t.Errorf("changed quotas are %v, want %d: without --enforce=cpu-throttle they stay", lowered, len(pods))
	}
	if ok, err := noted(); !ok || err != nil {
		t.Errorf("the Node lost its record: %v", err)
	}

	idle.remove(t)
	restoring := f.deploy(t, enforceThrottle()...)
	f.awaitAsBefore(t, before)
	f.Eventually(t, "the Node has no record", func() error {
		if ok, err := noted(); ok || err != nil {
			return fmt.Errorf("record %t, %v", ok, err)
		}

		return nil
	})

	restoring.remove(t)
	if lowered := node.ChangedSettings(before, f.Settings(t)); len(lowered) > 0 {
		t.Errorf("quotas are lowered again at the end of the agent: %v, want none", lowered)
	}
}

// onlyOf checks that only settings of the pod have changed.
func (f fixture) onlyOf(t testing.TB, pod *corev1.Pod, before map[string]string) {
	t.Helper()

	others := slices.DeleteFunc(node.ChangedSettings(before, f.Settings(t)), func(c string) bool { return strings.Contains(c, "/pod"+string(pod.UID)+"/") })
	if len(others) > 0 {
		t.Errorf("beside %s these settings changed: %s, want none", pod.Name, strings.Join(others, "; "))
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
