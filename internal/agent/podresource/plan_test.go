// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/pkg/units"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

// newContainer returns a container with amounts such as "cpu=2" (ordinary) and "elastic-cpu=2".
func newContainer(name string, amounts ...string) corev1.Container {
	list := corev1.ResourceList{}
	for _, a := range amounts {
		key, value, _ := strings.Cut(a, "=")
		name := map[string]corev1.ResourceName{
			"cpu": corev1.ResourceCPU, "memory": corev1.ResourceMemory,
			"elastic-cpu": ensurancev1alpha1.ResourceReclaimedCPU, "elastic-memory": ensurancev1alpha1.ResourceReclaimedMemory,
		}[key]
		list[name] = resource.MustParse(value)
	}

	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}
}

// containerID returns the ID of the container with a one-digit name.
func containerID(name string) string { return strings.Repeat(name, 64) }

func newPod(uid string, containers ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "p" + uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: containers}}
	for _, c := range containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, ContainerID: "containerd://" + containerID(c.Name)})
	}

	return p
}

// withPodResources returns a pod with requests and limits as a whole.
func withPodResources(pod *corev1.Pod, cpu, memory string) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list, Limits: list}
	return pod
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want groupTarget
		one  groupTarget // of container 1
	}{
		"one": {newPod("u", newContainer("1", "elastic-cpu=2")), groupTarget{elasticrequest.Amounts{CPU: 2000}, 2000, true}, groupTarget{limits: elasticrequest.Amounts{CPU: 2000}, weight: 2000}},
		"both resources": {
			newPod("u", newContainer("1", "elastic-cpu=2", "elastic-memory=1Gi"), newContainer("2", "elastic-cpu=1", "elastic-memory=512Mi")),
			groupTarget{elasticrequest.Amounts{CPU: 3000, Memory: 1536 * mi}, 3000, true},
			groupTarget{limits: elasticrequest.Amounts{CPU: 2000, Memory: gi}, weight: 2000},
		},
		"one without a limit": {newPod("u", newContainer("1", "elastic-cpu=2"), newContainer("2")), groupTarget{elasticrequest.Amounts{}, 2000, true}, groupTarget{limits: elasticrequest.Amounts{CPU: 2000}, weight: 2000}},
		"memory alone":        {newPod("u", newContainer("1", "elastic-memory=1Gi")), groupTarget{limits: elasticrequest.Amounts{Memory: gi}}, groupTarget{limits: elasticrequest.Amounts{Memory: gi}}},
		"beside one on the node's own cpu": {
			newPod("u", newContainer("1", "elastic-cpu=2"), newContainer("2", "cpu=500m", "memory=1Gi")),
			groupTarget{limits: elasticrequest.Amounts{CPU: 2500}},
			groupTarget{limits: elasticrequest.Amounts{CPU: 2000}, weight: 2000},
		},
		"memory of the node's own": {
			newPod("u", newContainer("1", "elastic-cpu=2", "memory=1Gi")), groupTarget{elasticrequest.Amounts{CPU: 2000}, 2000, true}, groupTarget{limits: elasticrequest.Amounts{CPU: 2000}, weight: 2000},
		},
		"cpu and memory of the pod as a whole": {
			withPodResources(newPod("u", newContainer("1", "elastic-cpu=1", "elastic-memory=1Gi")), "2", "4Gi"),
			groupTarget{},
			groupTarget{limits: elasticrequest.Amounts{CPU: 2000, Memory: 4 * gi}, weight: 1000},
		},
		"memory of the pod as a whole": {
			withPodResources(newPod("u", newContainer("1", "elastic-cpu=2")), "0", "4Gi"),
			groupTarget{elasticrequest.Amounts{CPU: 2000}, 2000, true},
			groupTarget{limits: elasticrequest.Amounts{CPU: 2000}, weight: 2000},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(c.pod)
			if p.pod != c.want || p.containers[containerID("1")] != c.one {
				t.Errorf("pod %+v, want %+v; container %+v, want %+v", p.pod, c.want, p.containers[containerID("1")], c.one)
			}
		})
	}

	if p := newPlan(newPod("u", newContainer("1", "cpu=1"), newContainer("2"))); p != nil {
		t.Errorf("newPlan without elastic requests = %+v, want nil", p)
	}

	// An init container without a limit leaves the pod unlimited; one above the sum of all others determines the pod's limit.
	pod := newPod("u", newContainer("1", "elastic-cpu=2"))
	pod.Spec.InitContainers = []corev1.Container{newContainer("0")}
	if p := newPlan(pod); p.pod.limits.CPU != 0 {
		t.Errorf("the pod's target is %+v, want no CPU limit: an init container has none", p.pod)
	}

	pod.Spec.InitContainers = []corev1.Container{newContainer("0", "elastic-cpu=5")}
	if p := newPlan(pod); p.pod.limits.CPU != 5000 || len(p.containers) != 1 {
		t.Errorf("newPlan = %+v, want the 5 cores of the init container and one container", p)
	}

	// A waiting container counts for the pod but has no target.
	waits := newPod("u", newContainer("1", "elastic-cpu=2"), newContainer("2", "elastic-cpu=4"))
	waits.Status.ContainerStatuses = waits.Status.ContainerStatuses[:1]
	if p := newPlan(waits); p.pod.limits.CPU != 6000 || len(p.containers) != 1 {
		t.Errorf("newPlan with a waiting container = %+v, want 6 cores and one target", p)
	}
}

func TestWeights(t *testing.T) {
	for m, want := range map[units.MilliCPU][2]string{1: {"2", "1"}, 1000: {"1024", "39"}, 4000: {"4096", "157"}, 1e15: {"262144", "10000"}} {
		if got := [2]string{formatShares(m), formatWeight(m)}; got != want {
			t.Errorf("%dm: %v, want %v", m, got, want)
		}
	}
}
