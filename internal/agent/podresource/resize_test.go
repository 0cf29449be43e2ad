// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// resize replaces the pod's spec, as the API server does before the kubelet acts.
func (m *fixture) resize(containers ...corev1.Container) {
	m.pods = []*corev1.Pod{newPod(uid, containers...)}
	for range reconcilesPerCleanup + 1 {
		m.advance()
	}
}

// TestResizeToOrdinaryCPU checks that a pod that gets a request of ordinary CPU is no longer idle, so that the kubelet can write its weight.
func TestResizeToOrdinaryCPU(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		m := newFixture(t, v1, newPod(uid, newContainer("1", "elastic-cpu=2", "memory=1Gi"), newContainer("2", "memory=64Mi")))
		file, original, kubelets := cgroup.FileWeight, "100", "39"
		if v1 {
			file, original, kubelets = cgroup.FileSharesV1, "1024", "1026"
		}

		m.advance()
		m.resize(newContainer("1", "elastic-cpu=2", "memory=1Gi"), newContainer("2", "memory=64Mi", "cpu=1"))
		if got := m.readGroupFile(podGroup, file); got != original {
			t.Errorf("v1 %t: weight after the resize = %s, want the original %s", v1, got, original)
		}
		if got := m.readGroupFile(podGroup, cgroup.FileIdle); got != "0" {
			t.Errorf("v1 %t: cpu.idle after the resize = %s, want 0", v1, got)
		}

		if err := m.tree.Write(m.settingPath(podGroup, file), kubelets); err != nil {
			t.Errorf("v1 %t: the kubelet's write of %s = %v, want nil", v1, file, err)
		}

		m.resize(newContainer("1", "elastic-cpu=2", "memory=1Gi"), newContainer("2", "memory=64Mi", "cpu=1"))
		if got := m.readGroupFile(podGroup, file); got != kubelets {
			t.Errorf("v1 %t: weight after the kubelet's write = %s, want %s", v1, got, kubelets)
		}
	}
}

// TestResizeOfLimits checks that the limits of a pod's group follow those of its containers in both directions, and end with the last
// container's limit.
func TestResizeOfLimits(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		m := newFixture(t, v1, newPod(uid, newContainer("1", "elastic-cpu=2", "elastic-memory=1Gi"), newContainer("2", "cpu=1", "memory=64Mi")))
		memory := cgroup.FileMemory
		if v1 {
			memory = cgroup.FileMemoryV1
		}

		originalMemory := m.readGroupFile(podGroup, memory)
		m.advance()
		for _, step := range []struct {
			sidecar       []string
			quota, memory string
		}{
			{[]string{"cpu=1", "memory=64Mi"}, "300000", "1140850688"},
			{[]string{"cpu=3", "memory=128Mi"}, "500000", "1207959552"},
			{[]string{"cpu=500m", "memory=32Mi"}, "250000", "1107296256"},
			{nil, m.noQuota(), originalMemory},
			{[]string{"cpu=1", "memory=64Mi"}, "300000", "1140850688"},
		} {
			m.resize(newContainer("1", "elastic-cpu=2", "elastic-memory=1Gi"), newContainer("2", step.sidecar...))
			quota := step.quota
			if !v1 && quota != m.noQuota() {
				quota += " 100000"
			}

			if got := m.readGroupFile(podGroup, m.quotaFile()); got != quota {
				t.Errorf("v1 %t: pod quota with a sidecar of %v = %s, want %s", v1, step.sidecar, got, quota)
			}
			if got := m.readGroupFile(podGroup, memory); got != step.memory {
				t.Errorf("v1 %t: pod memory limit with a sidecar of %v = %s, want %s", v1, step.sidecar, got, step.memory)
			}
		}
	}
}

// TestNoWritesWhileThrottled checks that nothing is written or reported while a rule holds limits of the pod below the targets.
func TestNoWritesWhileThrottled(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		m := newFixture(t, v1, newPod(uid, newContainer("1", "elastic-cpu=2", "elastic-memory=1Gi")))
		m.advance()
		th := act.NewThrottler(m.layout, m.journal)
		if err := th.Throttle(qos.Throttle{ContainerID: containerID("1"), From: 2000, To: 500, Original: 2000, Weight: 0.25}, containerGroup("1")); err != nil {
			t.Fatal(err)
		}

		reported := len(m.actions)
		for range 3 * reconcilesPerCleanup {
			m.advance()
		}

		if got := m.actions[reported:]; len(got) > 0 {
			t.Errorf("v1 %t: %d actions while throttled, want none; the last: %+v", v1, len(got), got[len(got)-1])
		}
	}
}

// TestWeightFormula checks that elastic containers get the weight that the node's runtime gives to ordinary ones with the same request.
func TestWeightFormula(t *testing.T) {
	for ordinary, want := range map[string]string{"39": "79", "100": "174", "57": "79"} {
		m := newFixture(t, false, newPod(uid, newContainer("1", "elastic-cpu=2"), newContainer("2", "cpu=1")))
		if err := m.tree.Write(m.settingPath(containerGroup("2"), cgroup.FileWeight), ordinary); err != nil {
			t.Fatal(err)
		}

		m.advance()
		if got := m.readGroupFile(containerGroup("1"), cgroup.FileWeight); got != want {
			t.Errorf("weight of 2 elastic CPUs beside a container with 1 CPU and weight %s = %s, want %s", ordinary, got, want)
		}
	}

	for request, want := range map[units.MilliCPU]string{1: "1", 100: "17", 1000: "100", 1e15: "10000"} {
		if got := formatNewWeight(request); got != want {
			t.Errorf("formatNewWeight(%d) = %s, want %s", request, got, want)
		}
	}
}
