// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// request is the zone request of a pod, from the pod alone.
type request struct {
	// resources are those of the containers with whole CPUs, of the resources that the plugin accounts.
	resources numa.Resources
	// singleZone is the pod's own policy; nil for that of the node.
	singleZone *bool
	// slot is the table of the request's answers, see recentRequests.
	slot int
}

// on returns the request on a node with its policy.
func (r *request) on(t *compiled) numa.Request {
	return numa.Request{Resources: r.resources, SingleZone: ptr.Deref(r.singleZone, t.singleZone)}
}

func (r *request) equal(o *request) bool {
	if r == nil || o == nil {
		return r == o
	}

	return maps.Equal(r.resources, o.resources) &&
		(r.singleZone == nil) == (o.singleZone == nil) && (r.singleZone == nil || *r.singleZone == *o.singleZone)
}

// requestOf returns the zone request of a pod, or nil if there is none: its containers do not request whole CPUs, it
// shares CPUs (cpu-policy none), or a DaemonSet fixes its node. Init containers do not count: they end before the
// others run.
func requestOf(pod *corev1.Pod, aware []corev1.ResourceName) *request {
	if !slices.Contains(aware, corev1.ResourceCPU) ||
		pod.Annotations[topology.AnnotationPodCPUPolicy] == topology.CPUPolicyNone || ofDaemonSet(pod) {
		return nil
	}

	var r *request
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if topologyconv.CountWholeCPUs(&c.Resources) == 0 {
			continue
		}

		if r == nil {
			r = &request{resources: numa.Resources{}}
		}

		for _, name := range aware {
			if q, ok := c.Resources.Requests[name]; ok {
				a, err := topologyconv.ParseAmount(name, q)
				if err != nil {
					a = numa.MaxAmount // more than any zone has
				}

				r.resources[units.Resource(name)] = min(numa.MaxAmount, r.resources[units.Resource(name)]+a)
			}
		}
	}

	if r == nil {
		return nil
	}

	if v, err := strconv.ParseBool(pod.Annotations[topology.AnnotationPodTopologyAwareness]); err == nil {
		r.singleZone = &v
	}

	return r
}

// releasesZones reports whether a pod with assigned zones holds them no longer, because the agent has taken its CPUs back: it has ended, its
// policy has become none, or a resize has left it without a container with whole CPUs. Until the kubelet has applied a resize, the pod holds
// its zones.
func releasesZones(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.Annotations[topology.AnnotationPodCPUPolicy] == topology.CPUPolicyNone {
		return true
	}

	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if topologyconv.CountWholeCPUs(&c.Resources) > 0 {
			return false
		}

		for j := range pod.Status.ContainerStatuses {
			applied := &pod.Status.ContainerStatuses[j]
			if applied.Name == c.Name && applied.Resources != nil && topologyconv.CountWholeCPUs(applied.Resources) > 0 {
				return false
			}
		}
	}

	return true
}

func ofDaemonSet(pod *corev1.Pod) bool {
	for i := range pod.OwnerReferences {
		if pod.OwnerReferences[i].Kind == "DaemonSet" {
			return true
		}
	}

	return false
}
