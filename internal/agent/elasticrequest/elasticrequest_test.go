// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticrequest

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

func container(name, cpu, memory string) corev1.Container {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[ensurancev1alpha1.ResourceReclaimedCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[ensurancev1alpha1.ResourceReclaimedMemory] = resource.MustParse(memory)
	}

	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}
}

func TestContainers(t *testing.T) {
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{container("first", "1", "")},
			Containers:     []corev1.Container{container("none", "", ""), container("both", "2", "1Gi"), container("late", "3", "")},
		},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "first", ContainerID: "containerd://f"}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "none", ContainerID: "containerd://n"}, {Name: "both", ContainerID: "cri-o://b"}, {Name: "late"}},
		},
	}

	want := []Container{
		{Name: "first", ID: "f", Amounts: Amounts{CPU: 1000}},
		{Name: "both", ID: "b", Amounts: Amounts{CPU: 2000, Memory: 1 << 30}},
		{Name: "late", Amounts: Amounts{CPU: 3000}},
	}

	if got := Containers(pod); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	pod.Status.Phase = corev1.PodSucceeded
	if got := Containers(pod); got != nil {
		t.Errorf("Containers of a terminated pod = %+v, want none", got)
	}
}

func TestSumAllocated(t *testing.T) {
	running := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("a", "2", "1Gi"), container("b", "1", "")}}}
	// An init container needs its request before the others start.
	starting := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{container("i", "5", "")}, Containers: []corev1.Container{container("a", "2", "")}}}
	over := &corev1.Pod{Spec: running.Spec, Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	if got := SumAllocated([]*corev1.Pod{running, starting, over, {}}); got != (Amounts{CPU: 8000, Memory: 1 << 30}) {
		t.Errorf("SumAllocated = %+v, want 8 cores and 1 GiB", got)
	}

	hostile := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("a", "-4", "9E"), container("b", "9E", "-1")}}}
	if got := SumAllocated([]*corev1.Pod{hostile, hostile}); got.CPU < 0 || got.Memory < 0 {
		t.Errorf("SumAllocated of hostile requests = %+v, want no negative amount", got)
	}
}
