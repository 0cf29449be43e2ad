// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package elasticrequest reads how much of the elastic resources gocrane.io/cpu and gocrane.io/memory pods and containers request, and
// how much a Node advertises.
package elasticrequest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

// Amounts holds CPU and memory; 0 for none.
type Amounts struct {
	CPU    units.MilliCPU
	Memory units.Bytes
}

// IsZero reports whether both amounts are 0.
func (a Amounts) IsZero() bool { return a == Amounts{} }

// Container is a container that requests elastic resources.
type Container struct {
	Name string
	// ID is the container ID without the runtime's prefix; empty before the container starts.
	ID string
	Amounts
}

// SumAllocated returns what pods hold, computed as the scheduler does: completed pods hold nothing, terminating ones keep theirs.
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

// Containers returns the containers of a pod that request elastic resources, init containers first; none for a completed pod.
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

// SumContainers returns the sum over all containers of a pod.
func SumContainers(pod *corev1.Pod) (sum Amounts) {
	for _, c := range Containers(pod) {
		sum.CPU += c.CPU
		sum.Memory += c.Memory
	}

	return sum
}

// ReadContainer returns the elastic resources of a container. The API server requires limits and requests to be equal.
func ReadContainer(c *corev1.Container) Amounts {
	a := readAmounts(c.Resources.Limits)
	requests := readAmounts(c.Resources.Requests)
	return Amounts{CPU: max(a.CPU, requests.CPU), Memory: max(a.Memory, requests.Memory)}
}

func readAmounts(list corev1.ResourceList) Amounts {
	cpu := list[ensurancev1alpha1.ResourceReclaimedCPU]
	memory := list[ensurancev1alpha1.ResourceReclaimedMemory]

	// The API server admits whole, non-negative numbers; sums of hostile ones must not overflow.
	return Amounts{CPU: units.MilliCPU(1000 * clampQuantity(cpu, maxCores)), Memory: units.Bytes(clampQuantity(memory, maxBytes))}
}

const (
	maxCores = 1 << 30
	maxBytes = 1 << 50
)

func clampQuantity(q resource.Quantity, limit int64) int64 { return min(max(q.Value(), 0), limit) }

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

// ReclaimableCapacity is the capacity of a node for pods on elastic resources; nil means unknown.
type ReclaimableCapacity struct {
	CPU    *units.MilliCPU
	Memory *units.Bytes
}

// AllocatedShares holds elastic.AllocatedShare of both resources; nil means unknown.
type AllocatedShares struct{ CPU, Memory *units.Ratio }

// ReadReclaimableCapacity reads the elastic resources of a Node's status; a missing resource is unknown.
func ReadReclaimableCapacity(list corev1.ResourceList) (r ReclaimableCapacity) {
	if q := list[ensurancev1alpha1.ResourceReclaimedCPU]; q.Sign() > 0 {
		r.CPU = new(units.MilliCPU(1000 * clampQuantity(q, maxCores)))
	}
	if q := list[ensurancev1alpha1.ResourceReclaimedMemory]; q.Sign() > 0 {
		r.Memory = new(units.Bytes(clampQuantity(q, maxBytes)))
	}

	return r
}

// AllocatedShares returns the allocated share of each resource.
func (r ReclaimableCapacity) AllocatedShares(allocated Amounts) (s AllocatedShares) {
	if r.CPU != nil {
		s.CPU = new(elastic.AllocatedShare(allocated.CPU, *r.CPU, elastic.CPU().Unit))
	}
	if r.Memory != nil {
		s.Memory = new(elastic.AllocatedShare(allocated.Memory, *r.Memory, elastic.Memory().Unit))
	}

	return s
}
