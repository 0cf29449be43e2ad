// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// nodePod is a pod of the node with its CPU request.
type nodePod struct {
	*corev1.Pod

	uid        string // as in the name of its cgroup
	terminated bool
	// optedOut means that nothing of it is changed.
	optedOut bool
	// avoidsReserved keeps the pod off reserved CPUs although it shares.
	avoidsReserved bool
	// containers maps runtime IDs to container names.
	containers map[string]string
	// request is nil for a pod that only shares.
	request *cpumanager.Pod
	// problem is the reason why a pod that requests exclusive CPUs shares CPUs; empty for none.
	problem string
}

func (p *nodePod) name() string { return p.Namespace + "/" + p.Name }

// readPods returns a node's pods, oldest first, so that running pods keep their CPUs. policy applies to pods that name none.
func readPods(list []*corev1.Pod, policy numa.Policy) []nodePod {
	sorted := slices.SortedStableFunc(slices.Values(list), func(a, b *corev1.Pod) int {
		return cmp.Or(startTime(a).Compare(startTime(b)), strings.Compare(string(a.UID), string(b.UID)))
	})

	uids := inventory.UIDs(sorted)
	out := make([]nodePod, 0, len(sorted))
	for i, pod := range sorted {
		p := nodePod{
			Pod:            pod,
			uid:            uids[i],
			containers:     map[string]string{},
			terminated:     pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
			optedOut:       optout.Labeled(pod.Labels),
			avoidsReserved: pod.Annotations[topologyv1alpha1.AnnotationPodExcludeReservedCPUs] == "true",
		}

		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range statuses {
				if _, id, ok := strings.Cut(statuses[i].ContainerID, "://"); ok && id != "" {
					p.containers[id] = statuses[i].Name
				}
			}
		}

		if !p.terminated && !p.optedOut {
			p.request, p.problem = readRequest(pod, p.uid, policy)
		}
		out = append(out, p)
	}

	return out
}

func startTime(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}

	return pod.CreationTimestamp.Time
}

// readRequest returns the zones that the scheduler assigned to a pod, with the containers that request whole CPUs.
func readRequest(pod *corev1.Pod, uid string, policy numa.Policy) (request *cpumanager.Pod, problem string) {
	result, ok := pod.Annotations[topologyv1alpha1.AnnotationPodTopologyResult]
	if !ok || result == "" {
		return nil, ""
	}

	if named, ok := pod.Annotations[topologyv1alpha1.AnnotationPodCPUPolicy]; ok {
		if IsPolicyName(named) {
			policy = numa.Policy(named)
		} else {
			problem = fmt.Sprintf("annotation %s is %.40q, which is not a policy: %s applies", topologyv1alpha1.AnnotationPodCPUPolicy, named, policy)
		}
	}

	if policy == numa.PolicyNone {
		return nil, problem
	}

	placement, err := topologyconv.DecodeResult(result)
	if err != nil {
		return nil, fmt.Sprintf("cannot parse its assigned zones: %v", err)
	}

	request = &cpumanager.Pod{UID: uid, Policy: policy, Zones: map[string]int{}}
	for _, share := range placement {
		// Everything above the largest CPU number is equally too much.
		request.Zones[share.Zone] = int(min(share.Resources[units.CPU]/numa.Core, numa.MaxCPU+1))
	}

	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		r := appliedResources(pod, c)
		n := topologyconv.CountWholeCPUs(r)
		if n == 0 || n > numa.MaxCPU+1 {
			continue
		}

		limit, err := topologyconv.ParseAmount(corev1.ResourceMemory, r.Limits[corev1.ResourceMemory])
		if err != nil {
			limit = 0
		}

		request.Containers = append(request.Containers, cpumanager.Container{Name: c.Name, CPUs: n, Memory: units.Bytes(limit)})
	}

	if len(request.Containers) == 0 {
		return nil, problem
	}

	return request, problem
}

// appliedResources returns a container's resources as applied by the kubelet; the spec is ahead of them during a resize.
func appliedResources(pod *corev1.Pod, c *corev1.Container) *corev1.ResourceRequirements {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if s.Name != c.Name || s.Resources == nil {
			continue
		}

		_, requested := s.Resources.Requests[corev1.ResourceCPU]
		_, limited := s.Resources.Limits[corev1.ResourceCPU]
		if requested && limited {
			return s.Resources
		}
	}

	return &c.Resources
}

// IsPolicyName reports whether text names a policy.
func IsPolicyName(text string) bool {
	return slices.Contains([]numa.Policy{numa.PolicyNone, numa.PolicyExclusive, numa.PolicyNUMA, numa.PolicyImmovable}, numa.Policy(text))
}
