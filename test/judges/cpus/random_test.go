// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"

	"crane.io/crane/pkg/numa"
)

// kubeletCPUs returns the CPUs that the kubelet's static policy chooses among free ones; false if it refuses.
func kubeletCPUs(t *testing.T, m machine, free numa.CPUSet, n int, options map[string]string) (numa.CPUSet, bool) {
	t.Helper()

	all := cpuset.New()
	for cpu := range m.cpus {
		all = all.Union(cpuset.New(cpu))
	}

	available, err := cpuset.Parse(free.String())
	if err != nil {
		t.Fatal(err)
	}

	reserved := all.Difference(available)
	policy, err := cpumanager.NewStaticPolicy(logr.Discard(), m.kubelets(), reserved.Size(), reserved, topologymanager.NewFakeManager(), options)
	if err != nil {
		t.Fatalf("NewStaticPolicy(%s, %v): %v", m.name, options, err)
	}

	whole := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Gi")}
	pod := &corev1.Pod{}
	pod.UID = "pod"
	pod.Status.QOSClass = corev1.PodQOSGuaranteed
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: whole, Limits: whole}}}

	cpus := state.NewMemoryState(logr.Discard())
	cpus.SetDefaultCPUSet(all)
	if err := policy.Allocate(logr.Discard(), cpus, pod, &pod.Spec.Containers[0]); err != nil {
		return numa.CPUSet{}, false
	}

	chosen, ok := cpus.GetCPUSet("pod", "main")
	if !ok {
		t.Fatalf("the kubelet's policy assigns no CPU of %s to a container of %d", free, n)
	}

	return numa.NewCPUSet(chosen.List()...), true
}

// policies returns the options of the kubelet's static policy to compare with.
func policies() map[string]map[string]string {
	return map[string]map[string]string{
		"packed":      nil,
		"distributed": {cpumanager.DistributeCPUsAcrossNUMAOption: "true"},
		"L3":          {cpumanager.PreferAlignByUnCoreCacheOption: "true"},
	}
}

// States of cores: all in use or free, but for one core of each zone in the second one, or any CPU in use or free.
const (
	wholeCores = iota
	almostWholeCores
	singleCPUs
	states
)

// randomFree returns random free CPUs by state of the cores. The first core or CPU is reserved.
func randomFree(r *rand.Rand, m machine, coreState int) []int {
	used := r.Float64()
	random := map[int]float64{}
	odd := map[int]bool{}
	var free []int
	for cpu := range len(m.cpus) {
		info := m.cpus[cpu]
		key := cpu
		if coreState != singleCPUs {
			key = info.CoreID
		}

		if _, drawn := random[key]; !drawn {
			random[key] = r.Float64()
		}

		if random[key] < used || key == 0 {
			continue
		}

		if coreState == almostWholeCores && !odd[info.NUMANodeID] {
			odd[info.NUMANodeID] = true
			continue
		}

		free = append(free, cpu)
	}

	return free
}

// TestRandomAgainstKubelet compares random requests on random free CPUs. The agent is never worse than the kubelet in the same zones. The
// scheduler knows how many CPUs of a zone are free, not which, so its choice of zones can be worse in caches, and in cores where more than one
// core of a zone is in part in use or cores have more than two threads; elsewhere it is not.
func TestRandomAgainstKubelet(t *testing.T) {
	klog.SetLogger(logr.Discard())
	defer klog.ClearLogger()

	machines := []machine{
		newMachine("desktop", 1, 1, 1, 8, 2),
		newMachine("two sockets", 2, 1, 1, 16, 2),
		newMachine("sub-NUMA clusters", 2, 2, 1, 10, 2),
		newMachine("chiplets", 1, 1, 8, 4, 2),
		newMachine("chiplets in zones", 2, 4, 2, 4, 2),
		newMachine("chiplets without threads", 2, 2, 4, 4, 1),
		newMachine("many zones", 2, 4, 1, 8, 2),
		newMachine("four threads a core", 2, 1, 2, 4, 4),
	}

	r := rand.New(rand.NewPCG(7, 39))
	equal, better, explained := 0, 0, 0
	for range 100 {
		for _, m := range machines {
			coreState := r.IntN(states)
			free := randomFree(r, m, coreState)
			if len(free) == 0 {
				continue
			}

			set := numa.NewCPUSet(free...)
			n := 1 + r.IntN(len(free))
			shares, ok := m.chooseZones(t, set, n)
			for name, options := range policies() {
				what := fmt.Sprintf("%s, %d of %s", m.name, n, set)
				theirs, theyCan := kubeletCPUs(t, m, set, n, options)
				if ok != theyCan {
					t.Errorf("%s: assigned %t, the kubelet (%s) %t", what, ok, name, theyCan)
					continue
				}

				want := m.judge(theirs)
				inTheirZones := m.assign(t, set, m.layout(t).CountByZone(theirs), n)
				if got := m.judge(inTheirZones); compare(got, want) > 0 {
					t.Errorf("%s: in the zones of the kubelet (%s) %s is %+v, want its %s, %+v, or better", what, name, inTheirZones, got, theirs, want)
				}

				ours := m.assign(t, set, shares, n)
				got := m.judge(ours)
				switch result := compare(got, want); {
				case result < 0:
					better++
				case result == 0:
					equal++
				case coreState != singleCPUs && m.kubelets().CPUsPerCore() <= 2 && compare(got.withoutCaches(), want.withoutCaches()) > 0:
					t.Errorf("%s: %s is %+v, want %s as the kubelet (%s), %+v, or better", what, ours, got, theirs, name, want)
				default:
					explained++
				}
			}
		}
	}

	t.Logf("equal %d, better %d, worse because the scheduler does not know cores and caches %d", equal, better, explained)
	const most = 200 // Of 2,400; a worse choice of zones makes it more.
	if explained > most || better < explained {
		t.Errorf("%d choices of zones are worse and %d better, want at most %d worse, and more better", explained, better, most)
	}
}
