// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/test/integration/harness"
)

// TestTaintOutlivesAnUpgrade checks with the agent's own rights that the taint stays while the DaemonSet starts another agent, that this one
// takes it over, and that it is removed when the DaemonSet is deleted.
func TestTaintOutlivesAnUpgrade(t *testing.T) {
	const node = "taint-upgrade"
	c := newClient(t)
	f := newHostFixture(t, c, 8000)
	labels := map[string]string{"app": node}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "crane-agent"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
		}},
	}

	harness.Create(t, c, newNode(node), nodeQOS(node, node, halfUsed, "40"), soon(node), set)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: node,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "crane-agent", Containers: set.Spec.Template.Spec.Containers},
	}

	harness.Create(t, c, pod)
	t.Setenv("POD_NAME", pod.Name)
	state := t.TempDir()
	start := func() *agent {
		return startAgent(t, node, "--enforce=taint", "--host-root="+f.dir, "--state-dir="+state)
	}
	marker := filepath.Join(state, "handover.json")
	first := start()
	since := interference(becomes(t, c, node, true)).LastTransitionTime

	if err := first.Terminate(t); err != nil {
		t.Fatal(err)
	}

	if n := becomes(t, c, node, true); !interference(n).LastTransitionTime.Equal(&since) {
		t.Error("the taint came and went, want it kept through the upgrade")
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error(err)
	}

	second := start()
	if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the marker is still there: %v", err)
	}

	second.awaitLog(t, "phase=firing", node+"/memory")
	f.uses(1000)
	becomes(t, c, node, false)
	f.uses(8000)
	becomes(t, c, node, true)

	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}

	if err := second.Terminate(t); err != nil {
		t.Fatal(err)
	}

	becomes(t, c, node, false)
}
