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
func (f fixture) pinned(name, cpus string) *corev1.Pod {
	return f.pinnedTo(name, "node0", cpus, "cpu-hog", "-threads", "1")
}

// pinnedTo is pinned for any zone and program.
func (f fixture) pinnedTo(name, zone, cpus, program string, args ...string) *corev1.Pod {
	list := node.Resources(cpus, "64Mi")
	pod := f.Pod(name, program, args, list, list)
	pod.Annotations = map[string]string{
		topologyv1alpha1.AnnotationPodTopologyResult: fmt.Sprintf(`[{"name":%q,"type":"Node","resources":{"capacity":{"cpu":%q}}}]`, zone, cpus),
	}

	return pod
}

// cpusets returns the CPUs of every container of a node in namespaces, without the pods' own cgroups, by path.
func (f fixture) cpusets(t testing.TB) map[string]numa.CPUSet {
	t.Helper()

	out := map[string]numa.CPUSet{}
	for file, value := range f.Settings(t) {
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
func (f fixture) awaitAlone(t testing.TB, pod *corev1.Pod, n int) (own numa.CPUSet) {
	t.Helper()

	f.Eventually(t, fmt.Sprintf("%s has %d CPUs alone", pod.Name, n), func() error {
		own = numa.CPUSet{}
		sets := f.cpusets(t)
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

	f := newFixture(t, node.Options{Restart: true})
	bystander := f.bystander(t)
	before := f.Settings(t)
	d := f.deploy(t, cpuManager()...)
	f.awaitTopology(t)

	pod := f.Run(t, f.pinned("pinned", "1"))
	own := f.awaitAlone(t, pod, 1)
	t.Run("after-a-resize", func(t *testing.T) {
		f.resizeMemory(t, pod, "96Mi")
		if now := f.awaitAlone(t, pod, 1); now != own {
			t.Errorf("after a resize it runs on %s, want %s as before", now, own)
		}
	})

	t.Run("after-somebody-else-moved-another", func(t *testing.T) {
		// As a container runtime does during a resize.
		everywhere := fmt.Appendf(nil, "0-%d", f.cpus(t)-1)
		if err := os.WriteFile(f.file("cpuset", "cpuset.cpus", bystander), everywhere, 0); err != nil {
			t.Fatal(err)
		}

		if now := f.awaitAlone(t, pod, 1); now != own {
			t.Errorf("it runs on %s, want %s as before", now, own)
		}
	})

	t.Run("after-a-restart-of-the-kubelet", func(t *testing.T) {
		if err := f.Kill("kubelet"); err != nil {
			t.Fatal(err)
		}

		// Only a working kubelet can start it; its container was not moved yet.
		late := f.Run(t, f.Pod("late", "pause", nil, nil, nil))

		if now := f.awaitAlone(t, pod, 1); now != own {
			t.Errorf("after the start of another pod it runs on %s, want %s as before", now, own)
		}
		f.Delete(t, late)
	})

	t.Run("handed-back-with-the-pod", func(t *testing.T) {
		f.Delete(t, pod)
		f.awaitAsBefore(t, before)
	})
	t.Run("undone-with-the-agent", func(t *testing.T) {
		again := f.Run(t, f.pinned("again", "1"))
		f.awaitAlone(t, again, 1)
		d.remove(t)
		f.awaitAsBefore(t, before)

		for group, cpus := range f.cpusets(t) {
			if cpus.Len() != f.cpus(t) {
				t.Errorf("%s still runs on %s, want all CPUs", group, cpus)
			}
		}
	})
}

// cpus returns the number of CPUs of the node.
func (f fixture) cpus(t testing.TB) int {
	t.Helper()

	n, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return int(n.Status.Capacity.Cpu().Value())
}

// awaitTopology waits for the node's NodeResourceTopology.
func (f fixture) awaitTopology(t testing.TB) {
	t.Helper()

	f.Eventually(t, "the NodeResourceTopology", func() error {
		nrt, err := f.topology(t)
		if err == nil && nrt.CraneManagerPolicy.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyStatic {
			err = fmt.Errorf("%+v", nrt)
		}

		return err
	})
}

// topology returns the node's NodeResourceTopology.
func (f fixture) topology(t testing.TB) (*topologyv1alpha1.NodeResourceTopology, error) {
	t.Helper()

	raw, err := f.Client.CoreV1().RESTClient().Get().AbsPath("/apis/topology.crane.io/v1alpha1/noderesourcetopologies/" + f.Name()).DoRaw(t.Context())
	if err != nil {
		return nil, err
	}

	nrt := &topologyv1alpha1.NodeResourceTopology{}
	return nrt, json.Unmarshal(raw, nrt)
}

func (f fixture) resizeMemory(t testing.TB, pod *corev1.Pod, memory string) {
	t.Helper()

	f.resize(t, pod, corev1.ResourceRequirements{Requests: node.Resources("", memory), Limits: node.Resources("", memory)})
	f.Await(t, pod, "has "+memory, func(p *corev1.Pod) bool {
		status := p.Status.ContainerStatuses
		return len(status) == 1 && status[0].Resources != nil && status[0].Resources.Limits.Memory().String() == memory
	})
}
