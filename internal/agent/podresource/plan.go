// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"crane.io/crane/internal/agent/effectiverequest"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/pkg/units"
)

// groupTarget holds the desired limits of a group; 0 leaves a setting alone.
type groupTarget struct {
	// limits are the maximum amounts.
	limits elasticrequest.Amounts
	// weight is the CPU request that its CPU weight corresponds to.
	weight units.MilliCPU
	// idle selects the idle class: the group runs only on otherwise idle CPUs.
	idle bool
}

// plan holds the targets of a pod's groups.
type plan struct {
	pod groupTarget
	// containers holds the targets of started containers by ID.
	containers map[string]groupTarget
	names      map[string]string
}

// newPlan returns nil for a pod without elastic resources. The pod's group gets the sum of its containers' limits if all have one, as in
// the kubelet, unless the pod has a limit as a whole. The kubelet sets the weight of containers that request ordinary CPU; a pod that
// requests some, as a whole or by a container, is not idle. No limit is lower than what the pod and the container request.
func newPlan(pod *corev1.Pod) *plan {
	containers := elasticrequest.Containers(pod)
	if len(containers) == 0 {
		return nil
	}

	p := &plan{containers: map[string]groupTarget{}, names: map[string]string{}}
	requestsCPU := containersRequestingCPU(pod)
	granted := effectiverequest.Containers(pod)
	for _, c := range containers {
		w := groupTarget{limits: atLeast(c.Amounts, granted[c.Name].Request)}
		if !requestsCPU[c.Name] {
			w.weight = c.CPU
		}

		if c.ID != "" {
			p.containers[c.ID] = w
			p.names[c.ID] = c.Name
		}
	}

	// The sum bounds the pod only if every container has a limit, as in the kubelet.
	limited, bound := withElasticLimits(pod)
	limits := podresource.PodLimits(limited, podresource.PodResourcesOptions{})
	sum := elasticrequest.Amounts{CPU: units.MilliCPU(limits.Cpu().MilliValue()), Memory: units.Bytes(limits.Memory().Value())}
	if !bound.cpu {
		sum.CPU = 0
	}
	if !bound.memory {
		sum.Memory = 0
	}

	requested := effectiverequest.Pod(pod).Request
	p.pod.limits = atLeast(sum, requested)

	if requested.CPU == 0 {
		p.pod.weight = elasticrequest.SumAllocated([]*corev1.Pod{pod}).CPU
		p.pod.idle = p.pod.weight > 0
	}

	return p
}

// atLeast raises limits to requests; a limit of 0 stays none.
func atLeast(limits, requests elasticrequest.Amounts) elasticrequest.Amounts {
	if limits.CPU > 0 {
		limits.CPU = max(limits.CPU, requests.CPU)
	}
	if limits.Memory > 0 {
		limits.Memory = max(limits.Memory, requests.Memory)
	}

	return limits
}

// containersRequestingCPU returns the containers that request ordinary CPU.
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

// limitedResources holds whether all containers of a pod have a limit.
type limitedResources struct{ cpu, memory bool }

// withElasticLimits returns the pod with elastic requests as CPU and memory limits of containers that have no ordinary ones.
func withElasticLimits(pod *corev1.Pod) (*corev1.Pod, limitedResources) {
	out := &corev1.Pod{Spec: corev1.PodSpec{Overhead: pod.Spec.Overhead}}
	all := limitedResources{true, true}
	some := limitedResources{}

	// The kubelet sets the limits of the pod as a whole.
	if pod.Spec.Resources != nil {
		whole := pod.Spec.Resources.Limits
		all = limitedResources{whole.Cpu().IsZero(), whole.Memory().IsZero()}
	}

	// A container is limited by its ordinary limit, else by its elastic amount.
	limited := func(list []corev1.Container) []corev1.Container {
		converted := make([]corev1.Container, len(list))
		for i := range list {
			a := elasticrequest.ReadContainer(&list[i])
			limits := corev1.ResourceList{}
			ordinary := list[i].Resources.Limits
			cpu := ordinary[corev1.ResourceCPU]
			memory := ordinary[corev1.ResourceMemory]

			if cpu.IsZero() {
				cpu = *resource.NewMilliQuantity(int64(a.CPU), resource.DecimalSI)
			}
			if memory.IsZero() {
				memory = *resource.NewQuantity(int64(a.Memory), resource.BinarySI)
			}

			limits[corev1.ResourceCPU] = cpu
			limits[corev1.ResourceMemory] = memory
			all.cpu = all.cpu && !cpu.IsZero()
			all.memory = all.memory && !memory.IsZero()
			some.cpu = some.cpu || a.CPU > 0
			some.memory = some.memory || a.Memory > 0
			converted[i] = corev1.Container{Name: list[i].Name, RestartPolicy: list[i].RestartPolicy, Resources: corev1.ResourceRequirements{Limits: limits}}
		}

		return converted
	}

	out.Spec.InitContainers = limited(pod.Spec.InitContainers)
	out.Spec.Containers = limited(pod.Spec.Containers)
	return out, limitedResources{all.cpu && some.cpu, all.memory && some.memory}
}
