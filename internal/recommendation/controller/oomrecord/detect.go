// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/oom"
	"crane.io/crane/pkg/units"
)

// Reasons in the status of a pod.
const (
	reasonOOMKilled = "OOMKilled"
	reasonEvicted   = "Evicted"
)

// largerConsumption matches the containers in the message of an eviction that used more than their request.
var largerConsumption = regexp.MustCompile(`Container (\S+) was using (\S+), request is (\S+), has larger consumption of memory\.`)

// DetectKills returns the kills in the status of a pod: in the current and the last state of each container, including init
// and sidecar containers, and in an eviction for lack of memory. Owners are left empty.
func DetectKills(pod *corev1.Pod) []oom.Kill {
	var out []oom.Kill
	for _, part := range []struct {
		specs    []corev1.Container
		statuses []corev1.ContainerStatus
	}{
		{pod.Spec.InitContainers, pod.Status.InitContainerStatuses},
		{pod.Spec.Containers, pod.Status.ContainerStatuses},
	} {
		for i := range part.statuses {
			s := &part.statuses[i]
			for _, end := range []*corev1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
				if end == nil || end.Reason != reasonOOMKilled {
					continue
				}

				k := killOf(pod, s.Name, cmp.Or(end.ContainerID, end.FinishedAt.UTC().Format(time.RFC3339)))
				k.Cause = oom.Killed
				k.Memory, k.NoLimit = memoryOf(containerSpec(part.specs, s.Name), s)
				k.At = timeOf(pod, end)
				out = append(out, k)
			}
		}
	}

	return append(out, evictions(pod)...)
}

func killOf(pod *corev1.Pod, container, run string) oom.Kill {
	return oom.Kill{
		ID:        oom.NewID(string(pod.UID), container, run),
		Namespace: pod.Namespace,
		Pod:       pod.Name,
		Container: container,
	}
}

// timeOf returns the time at which a run ended, or the constant creation time of the pod if the runtime reports none.
func timeOf(pod *corev1.Pod, end *corev1.ContainerStateTerminated) time.Time {
	if !end.FinishedAt.IsZero() {
		return end.FinishedAt.UTC()
	}

	return pod.CreationTimestamp.UTC()
}

func containerSpec(all []corev1.Container, name string) *corev1.Container {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}

	return &corev1.Container{}
}

// memoryOf returns the memory of a container: the limit in force, else the limit of its spec, else the request. noLimit is set
// if there is no limit; it is not for a container without a spec, whose limit is unknown.
func memoryOf(spec *corev1.Container, status *corev1.ContainerStatus) (memory units.Bytes, noLimit bool) {
	inForce := corev1.ResourceRequirements{}
	if status.Resources != nil {
		inForce = *status.Resources
	}

	limits := []corev1.ResourceList{inForce.Limits, spec.Resources.Limits}
	if limit := firstMemory(limits); limit > 0 {
		return limit, false
	}

	return firstMemory([]corev1.ResourceList{inForce.Requests, spec.Resources.Requests}), spec.Name != ""
}

func firstMemory(lists []corev1.ResourceList) units.Bytes {
	for _, list := range lists {
		if m := list.Memory().Value(); m > 0 {
			return units.Bytes(m)
		}
	}

	return 0
}

// evictions returns the containers that the kubelet names for excessive memory usage, or the only container if it names
// none.
func evictions(pod *corev1.Pod) []oom.Kill {
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != reasonEvicted || !strings.Contains(pod.Status.Message, "low on resource: memory") {
		return nil
	}

	at := evictedAt(pod)
	var out []oom.Kill
	for _, found := range largerConsumption.FindAllStringSubmatch(pod.Status.Message, -1) {
		k := killOf(pod, found[1], reasonEvicted)
		k.Cause = oom.Evicted
		k.At = at
		for _, text := range found[2:] {
			if q, err := apiresource.ParseQuantity(text); err == nil {
				k.Memory = max(k.Memory, units.Bytes(q.Value()))
			}
		}

		out = append(out, k)
	}

	// The message may name no container, which is unambiguous where there is only one.
	if len(out) == 0 && len(pod.Spec.Containers) == 1 {
		k := killOf(pod, pod.Spec.Containers[0].Name, reasonEvicted)
		k.Cause = oom.Evicted
		k.At = at
		k.Memory, _ = memoryOf(&pod.Spec.Containers[0], &corev1.ContainerStatus{})
		k.NoLimit = true // The usage at the eviction is unknown.
		out = append(out, k)
	}

	return out
}

// evictedAt returns the time of the eviction, or the end of the last container, or the constant creation time of the pod.
func evictedAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.UTC()
		}
	}

	var last time.Time
	for i := range pod.Status.ContainerStatuses {
		if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil && end.FinishedAt.After(last) {
			last = end.FinishedAt.UTC()
		}
	}

	if last.IsZero() {
		return pod.CreationTimestamp.UTC()
	}

	return last
}
