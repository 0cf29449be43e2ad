// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/test/e2e/node"
)

// TestCPUsGrowInPlace checks on cgroup v2 that an in-place resize changes the exclusive CPUs of a container within its zone, and that all
// run everywhere without the agent.
func TestCPUsGrowInPlace(t *testing.T) {
	f := newMachineFixture(t, node.Options{Machine: true, Cgroup: 2, CPUs: 4, NUMAZones: 2})
	other := f.Run(t, f.Pod("other", "pause", nil, nil, nil))
	d := f.deploy(t, append(cpuManager(), "--collect-interval=5s")...)
	pod := f.Run(t, f.pinned("pinned", "1"))
	cgroups := f.Cgroups(t)

	run := func(own, rest string) {
		t.Helper()

		f.Eventually(t, fmt.Sprintf("the pod runs on %s and the other on %s", own, rest), func() error {
			mine, err := cgroups.ContainerLimits(t, pod)
			if err != nil {
				return err
			}

			theirs, err := cgroups.ContainerLimits(t, other)
			if err == nil && (mine.CPUs != own || theirs.CPUs != rest) {
				err = fmt.Errorf("they run on %q and %q", mine.CPUs, theirs.CPUs)
			}

			return err
		})
	}

	run("0", "1-3")
	f.resizeCPU(t, pod, "2")
	run("0-1", "2-3")
	f.resizeCPU(t, pod, "1")
	run("0", "1-3")
	d.remove(t)
	run("0-3", "0-3")
}

func (f fixture) resizeCPU(t testing.TB, pod *corev1.Pod, cpus string) {
	t.Helper()
	f.resize(t, pod, corev1.ResourceRequirements{Requests: node.Resources(cpus, ""), Limits: node.Resources(cpus, "")})
}

// resize resizes a pod's container in place.
func (f fixture) resize(t testing.TB, pod *corev1.Pod, to corev1.ResourceRequirements) {
	t.Helper()

	body, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}

	body = fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"resources":%s}]}}`, pod.Spec.Containers[0].Name, body)
	if _, err := f.Client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatal(err)
	}
}
