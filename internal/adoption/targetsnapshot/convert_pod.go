// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// PodEnded reports whether a pod has ended or is being deleted, so that it no longer belongs to its workload.
func PodEnded(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// ConvertPod returns what decisions need of a pod.
func ConvertPod(pod *corev1.Pod) adoption.Pod {
	out := adoption.Pod{
		Name:         pod.Name,
		UID:          string(pod.UID),
		Created:      pod.CreationTimestamp.Time,
		NotResizable: notResizableReason(pod),
		Protected:    eviction.AnnotationReason(pod),
	}

	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		next := convertContainer(c, pod.Status.InitContainerStatuses)
		if next.Frozen = !sidecar; next.Frozen {
			next.EndedAt = next.KilledAt // Init containers end by design.
		}

		out.Containers = append(out.Containers, next)
	}

	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, convertContainer(&pod.Spec.Containers[i], pod.Status.ContainerStatuses))
	}

	out.UnreadySince = pod.CreationTimestamp.Time
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		switch c.Type {
		case corev1.PodReady:
			out.Ready = c.Status == corev1.ConditionTrue
			out.UnreadySince = c.LastTransitionTime.Time
		case corev1.PodResizePending:
			if c.Status == corev1.ConditionTrue {
				out.ResizeStatus = adoption.ResizeDeferred
				out.ResizeMessage = c.Message
				if c.Reason == corev1.PodReasonInfeasible {
					out.ResizeStatus = adoption.ResizeInfeasible
				}
			}

		case corev1.PodResizeInProgress:
			if c.Status == corev1.ConditionTrue && out.ResizeStatus == adoption.ResizeDone {
				out.ResizeStatus = adoption.ResizeInProgress
				out.ResizeMessage = c.Message
				if c.Reason == corev1.PodReasonError {
					out.ResizeStatus = adoption.ResizeFailed
				}
			}

		default:
		}
	}

	if seen := pod.Status.ObservedGeneration; out.ResizeStatus == adoption.ResizeDone && seen != 0 && seen < pod.Generation {
		// Kubelets before 1.34 do not report the observed generation.
		out.ResizeStatus = adoption.ResizeInProgress
		out.ResizeMessage = "its node has not seen it yet"
	}

	return out
}

// notResizableReason returns why a pod cannot be resized at all, or "".
func notResizableReason(pod *corev1.Pod) string {
	switch {
	case PodEnded(pod):
		return "it has ended"
	case pod.Status.Phase != corev1.PodRunning:
		return "it does not run yet"
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "it is a static pod"

	case pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows:
		return "it runs on Windows"
	case hasPodLevelResources(&pod.Spec):
		return "it has resources of its own beside those of its containers"
	default:
		return ""
	}
}

// hasPodLevelResources reports whether pods have resources as a whole, which stand for those of their containers.
func hasPodLevelResources(spec *corev1.PodSpec) bool { return spec != nil && spec.Resources != nil }

func convertContainer(c *corev1.Container, statuses []corev1.ContainerStatus) adoption.Container {
	out := adoption.Container{Name: c.Name, Size: ConvertResources(c.Resources)}
	for _, p := range c.ResizePolicy {
		restarts := p.RestartPolicy == corev1.RestartContainer
		switch p.ResourceName {
		case corev1.ResourceCPU:
			out.RestartsForCPU = restarts
		case corev1.ResourceMemory:
			out.RestartsForMemory = restarts
		default:
		}
	}

	for i := range statuses {
		s := &statuses[i]
		if s.Name != c.Name {
			continue
		}

		// A container that runs again has its last end in LastTerminationState, one that does not in State.
		for _, end := range []*corev1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
			if end == nil {
				continue
			}

			out.EndedAt = latest(out.EndedAt, end.FinishedAt)
			if end.Reason == "OOMKilled" {
				out.KilledAt = latest(out.KilledAt, end.FinishedAt)
			}
		}
	}

	return out
}

func latest(a time.Time, b metav1.Time) time.Time {
	if b.After(a) {
		return b.Time
	}

	return a
}

// ConvertResources returns the requests and limits of a container; a zero amount counts as absent.
func ConvertResources(r corev1.ResourceRequirements) rightsize.Resources {
	return rightsize.Resources{
		CPURequest:    cpuAmount(r.Requests),
		CPULimit:      cpuAmount(r.Limits),
		MemoryRequest: memoryAmount(r.Requests),
		MemoryLimit:   memoryAmount(r.Limits),
	}
}

func cpuAmount(list corev1.ResourceList) *units.MilliCPU {
	if v := units.MilliCPU(list.Cpu().MilliValue()); v > 0 {
		return &v
	}

	return nil
}

func memoryAmount(list corev1.ResourceList) *units.Bytes {
	if v := units.Bytes(list.Memory().Value()); v > 0 {
		return &v
	}

	return nil
}

// TemplateSize returns the size in a pod template, limited to the containers of another size.
func TemplateSize(spec *corev1.PodSpec, size adoption.Size) adoption.Size {
	out := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if _, wanted := size.Containers[list[i].Name]; wanted {
				out.Containers[list[i].Name] = ConvertResources(list[i].Resources)
			}
		}
	}

	return out
}
