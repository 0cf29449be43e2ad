// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/test/e2e/node"
)

// cpuManager returns flags that only assign CPUs.
func cpuManager() []string {
	return []string{"--enforce=cpu-manager", "--feature-gates=NodeResourceTopology=true,CraneCPUManager=true", "--cpu-manager-reconcile-period=2s", "--cpu-manager-bind-memory"}
}

// pinned returns a pod with the given CPUs of zone node0, as placed by the scheduler.
func (s fixture) pinned(name, cpus string) *corev1.Pod {
	return s.pinnedTo(name, "node0", cpus, "cpu-hog", "-threads", "1")
}

// pinnedTo is pinned for any zone and program.
func (s fixture) pinnedTo(name, zone, cpus, program string, args ...string) *corev1.Pod {
	list := node.Resources(cpus, "64Mi")
	pod := s.Pod(name, program, args, list, list)
	pod.Annotations = map[string]string{
		topologyv1alpha1.AnnotationPodTopologyResult: fmt.Sprintf(`[{"name":%q,"type":"Node","resources":{"capacity":{"cpu":%q}}}]`, zone, cpus),
	}

	return pod
}

// cpusets returns the CPUs of every container of a node in namespaces, without the pods' own cgroups, by path.
func (s fixture) cpusets(t testing.TB) map[string]numa.CPUSet {
	t.Helper()

	out := map[string]numa.CPUSet{}
	for file, value := range s.Settings(t) {
		if path.Base(file) != "cpuset.cpus" || strings.HasPrefix(path.Base(path.Dir(file)), "pod") {
			continue
		}

		set, err := numa.ParseCPUSet(value)
		if err != nil {
			t.Fatalf("parsing the CPUs of %s: %v", file, err)
		}

		out[path.Dir(file)] = set
	}

	return out
}

// awaitAlone waits until a container has the given number of CPUs that no other container has, and returns them.
func (s fixture) awaitAlone(t testing.TB, pod *corev1.Pod, n int) (own numa.CPUSet) {
	t.Helper()

	s.Eventually(t, fmt.Sprintf("%s has %d CPUs alone", pod.Name, n), func() error {
		own = numa.CPUSet{}
		sets := s.cpusets(t)
		for group, cpus := range sets {
			if strings.HasSuffix(group, node.Group(pod)) {
				own = cpus
			}
		}

		if own.Len() != n {
			return fmt.Errorf("it runs on %q of %d groups", own, len(sets))
		}

		for _, group := range slices.Sorted(maps.Keys(sets)) {
			if !strings.HasSuffix(group, node.Group(pod)) && sets[group].Intersection(own).Len() > 0 {
				return fmt.Errorf("%s runs on %s, which has %s", group, sets[group], own)
			}
		}

		return nil
	})

	return own
}

// TestCPUsOfTheirOwn checks on a real node that a container keeps its exclusive CPUs across a resize and a kubelet restart, and that all
// is restored with the end of the pod or the agent.
func TestCPUsOfTheirOwn(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU cannot be had alone")
	}

	s := newFixture(t, node.Options{Restart: true})
	bystander := s.bystander(t)
	before := s.Settings(t)
	d := s.deploy(t, cpuManager()...)
	s.awaitTopology(t)

	pod := s.Run(t, s.pinned("pinned", "1"))
	own := s.awaitAlone(t, pod, 1)
	t.Run("after-a-resize", func(t *testing.T) {
		s.resizeMemory(t, pod, "96Mi")
		if now := s.awaitAlone(t, pod, 1); now != own {
			t.Errorf("after a resize it runs on %s, want %s as before", now, own)
		}
	})

	t.Run("after-somebody-else-moved-another", func(t *testing.T) {
		// As a container runtime does during a resize.
		everywhere := fmt.Appendf(nil, "0-%d", s.cpus(t)-1)
		if err := os.WriteFile(s.file("cpuset", "cpuset.cpus", bystander), everywhere, 0); err != nil {
			t.Fatal(err)
		}

		if now := s.awaitAlone(t, pod, 1); now != own {
			t.Errorf("it runs on %s, want %s as before", now, own)
		}
	})

	t.Run("after-a-restart-of-the-kubelet", func(t *testing.T) {
		if err := s.Kill("kubelet"); err != nil {
			t.Fatal(err)
		}

		// Only a working kubelet can start it; its container was not moved yet.
		late := s.Run(t, s.Pod("late", "pause", nil, nil, nil))

		if now := s.awaitAlone(t, pod, 1); now != own {
			t.Errorf("after the start of another pod it runs on %s, want %s as before", now, own)
		}
		s.Delete(t, late)
	})

	t.Run("handed-back-with-the-pod", func(t *testing.T) {
		s.Delete(t, pod)
		s.awaitAsBefore(t, before)
	})
	t.Run("undone-with-the-agent", func(t *testing.T) {
		again := s.Run(t, s.pinned("again", "1"))
		s.awaitAlone(t, again, 1)
		d.remove(t)
		s.awaitAsBefore(t, before)

		for group, cpus := range s.cpusets(t) {
			if cpus.Len() != s.cpus(t) {
				t.Errorf("%s still runs on %s, want all CPUs", group, cpus)
			}
		}
	})
}

// cpus returns the number of CPUs of the node.
func (s fixture) cpus(t testing.TB) int {
	t.Helper()

	n, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return int(n.Status.Capacity.Cpu().Value())
}

// awaitTopology waits for the node's NodeResourceTopology.
func (s fixture) awaitTopology(t testing.TB) {
	t.Helper()

	s.Eventually(t, "the NodeResourceTopology", func() error {
		nrt, err := s.topology(t)
		if err == nil && nrt.CraneManagerPolicy.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyStatic {
			err = fmt.Errorf("%+v", nrt)
		}

		return err
	})
}

// topology returns the node's NodeResourceTopology.
func (s fixture) topology(t testing.TB) (*topologyv1alpha1.NodeResourceTopology, error) {
	t.Helper()

	raw, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/apis/topology.crane.io/v1alpha1/noderesourcetopologies/" + s.Name()).DoRaw(t.Context())
	if err != nil {
		return nil, err
	}

	nrt := &topologyv1alpha1.NodeResourceTopology{}
	return nrt, json.Unmarshal(raw, nrt)
}

func (s fixture) resizeMemory(t testing.TB, pod *corev1.Pod, memory string) {
	t.Helper()

	s.resize(t, pod, corev1.ResourceRequirements{Requests: node.Resources("", memory), Limits: node.Resources("", memory)})
	s.Await(t, pod, "has "+memory, func(p *corev1.Pod) bool {
		status := p.Status.ContainerStatuses
		return len(status) == 1 && status[0].Resources != nil && status[0].Resources.Limits.Memory().String() == memory
	})
}
