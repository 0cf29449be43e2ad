// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package elasticrequest is what pods ask of elastic resources (gocrane.io/cpu, gocrane.io/memory): the whole of a node's, and that of each
// container. It reads specs and statuses, and knows neither what a node has nor what anybody uses.
package elasticrequest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/pkg/series"
)

// Amounts are of both resources; 0 for none.
type Amounts struct {
	CPU    series.MilliCPU
	Memory series.Bytes
}

// IsZero tells that nothing is claimed.
func (a Amounts) IsZero() bool { return a == Amounts{} }

// Container is a container of a pod that claims something.
type Container struct {
	Name string
	// ID is the runtime's, without its name; empty for one that has not started yet.
	ID string
	Amounts
}

// SumAllocated is what pods hold: those that have ended hold nothing, those that are ending hold theirs to the last. It is counted as the
// scheduler does.
func SumAllocated(pods []*corev1.Pod) Amounts {
	var sum Amounts
	for _, pod := range pods {
		if isTerminated(pod) {
			continue
		}
		requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
		a := readAmounts(requests)
		sum.CPU += a.CPU
		sum.Memory += a.Memory
	}
	return sum
}

func isTerminated(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Containers are those of a pod that claim something, init containers first; none of a pod that has ended.
func Containers(pod *corev1.Pod) []Container {
	if isTerminated(pod) {
		return nil
	}
	var out []Container
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if a := ReadContainer(&list[i]); !a.IsZero() {
				out = append(out, Container{Name: list[i].Name, ID: containerID(pod, list[i].Name), Amounts: a})
			}
		}
	}
	return out
}

// SumContainers is what any container of a pod claims, all of them together.
func SumContainers(pod *corev1.Pod) (sum Amounts) {
	for _, c := range Containers(pod) {
		sum.CPU += c.CPU
		sum.Memory += c.Memory
	}
	return sum
}

// ReadContainer is what a container claims: its limits, which the API server wants to be the same as its requests.
func ReadContainer(c *corev1.Container) Amounts {
	a, requests := readAmounts(c.Resources.Limits), readAmounts(c.Resources.Requests)
	return Amounts{CPU: max(a.CPU, requests.CPU), Memory: max(a.Memory, requests.Memory)}
}

func readAmounts(list corev1.ResourceList) Amounts {
	cpu, memory := list[ensurancev1alpha1.ResourceReclaimedCPU], list[ensurancev1alpha1.ResourceReclaimedMemory]
	// What the API server admits is whole and not below 0; a sum of hostile ones must not turn around.
	return Amounts{CPU: series.MilliCPU(1000 * clampQuantity(cpu, maxCores)), Memory: series.Bytes(clampQuantity(memory, maxBytes))}
}

const (
	maxCores = 1 << 30
	maxBytes = 1 << 50
)

func clampQuantity(q resource.Quantity, most int64) int64 { return min(max(q.Value(), 0), most) }

func containerID(pod *corev1.Pod, name string) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				_, id, _ := strings.Cut(list[i].ContainerID, "://")
				return id
			}
		}
	}
	return ""
}
