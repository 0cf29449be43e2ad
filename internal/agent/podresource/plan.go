// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/pkg/series"
)

// groupTarget is what a group is to have; 0 for what is left alone.
type groupTarget struct {
	// limits are the most that it may use.
	limits elasticrequest.Amounts
	// weight is its part of cpu where others want it too: that of a request of as much.
	weight series.MilliCPU
	// idle tells that it is to run when nobody else wants to.
	idle bool
}

// plan is what the groups of a pod are to have.
type plan struct {
	pod groupTarget
	// containers are by the runtime's id: those that have started.
	containers map[string]groupTarget
	names      map[string]string
}

// newPlan plans for a pod; nil for one that claims nothing. The pod's group gets a limit where all containers have one, which is their sum,
// as a kubelet counts. A container that requests cpu of the node's own has its weight from the kubelet, and a pod with one is not idle.
func newPlan(pod *corev1.Pod) *plan {
	claims := elasticrequest.Containers(pod)
	if len(claims) == 0 {
		return nil
	}
	p := &plan{containers: map[string]groupTarget{}, names: map[string]string{}}
	own := containersRequestingCPU(pod)
	for _, c := range claims {
		w := groupTarget{limits: c.Amounts}
		if !own[c.Name] {
			w.weight = c.CPU
		}
		if c.ID != "" {
			p.containers[c.ID], p.names[c.ID] = w, c.Name
		}
	}
	shadow, bound := withElasticLimits(pod)
	limits := podresource.PodLimits(shadow, podresource.PodResourcesOptions{})
	if bound.cpu {
		p.pod.limits.CPU = series.MilliCPU(limits.Cpu().MilliValue())
	}
	if bound.memory {
		p.pod.limits.Memory = series.Bytes(limits.Memory().Value())
	}
	if len(own) == 0 {
		p.pod.weight = elasticrequest.SumAllocated([]*corev1.Pod{pod}).CPU
		p.pod.idle = p.pod.weight > 0
	}
	return p
}

// containersRequestingCPU are the containers that request cpu of the node's own.
func containersRequestingCPU(pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q, ok := list[i].Resources.Requests[corev1.ResourceCPU]; ok && !q.IsZero() {
				out[list[i].Name] = true
			}
		}
	}
	return out
}

// limitedResources tell whether every container of a pod has a limit.
type limitedResources struct{ cpu, memory bool }

// withElasticLimits is the pod with what its containers claim as limits of cpu and memory, where they have none of the node's own.
func withElasticLimits(pod *corev1.Pod) (*corev1.Pod, limitedResources) {
	out := &corev1.Pod{Spec: corev1.PodSpec{Overhead: pod.Spec.Overhead}}
	all, some := limitedResources{true, true}, limitedResources{}
	limited := func(list []corev1.Container) []corev1.Container {
		made := make([]corev1.Container, len(list))
		for i := range list {
			a := elasticrequest.ReadContainer(&list[i])
			limits := corev1.ResourceList{}
			own := list[i].Resources.Limits
			cpu, memory := own[corev1.ResourceCPU], own[corev1.ResourceMemory]
			if cpu.IsZero() {
				cpu = *resource.NewMilliQuantity(int64(a.CPU), resource.DecimalSI)
			}
			if memory.IsZero() {
				memory = *resource.NewQuantity(int64(a.Memory), resource.BinarySI)
			}
			limits[corev1.ResourceCPU], limits[corev1.ResourceMemory] = cpu, memory
			all.cpu, all.memory = all.cpu && !cpu.IsZero(), all.memory && !memory.IsZero()
			some.cpu, some.memory = some.cpu || a.CPU > 0, some.memory || a.Memory > 0
			made[i] = corev1.Container{Name: list[i].Name, RestartPolicy: list[i].RestartPolicy, Resources: corev1.ResourceRequirements{Limits: limits}}
		}
		return made
	}
	out.Spec.InitContainers, out.Spec.Containers = limited(pod.Spec.InitContainers), limited(pod.Spec.Containers)
	return out, limitedResources{all.cpu && some.cpu, all.memory && some.memory}
}
