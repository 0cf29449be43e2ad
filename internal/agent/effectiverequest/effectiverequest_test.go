// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package effectiverequest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/agent/elasticrequest"
)

func list(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[corev1.ResourceMemory] = resource.MustParse(memory)
	}

	return out
}

func newContainer(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

const gi = 1 << 30

// TestContainers checks the resources of each container, and that the requests of a pod's containers cover the pod's request.
func TestContainers(t *testing.T) {
	none := corev1.ResourceList{}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := newContainer("mesh", list("100m", ""), none)
	sidecar.RestartPolicy = &always

	tests := []struct {
		name string
		pod  corev1.Pod
		want map[string]Resources
	}{
		{
			name: "own resources",
			pod:  corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{newContainer("main", list("900m", "1Gi"), list("1500m", "2Gi"))}}},
			want: map[string]Resources{"main": {elasticrequest.Amounts{CPU: 900, Memory: gi}, elasticrequest.Amounts{CPU: 1500, Memory: 2 * gi}}},
		},
		{
			name: "resources of the pod alone",
			pod: corev1.Pod{Spec: corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Requests: list("2", "4Gi"), Limits: list("3", "4Gi")},
				Containers: []corev1.Container{{Name: "main"}},
			}},
			want: map[string]Resources{"main": {elasticrequest.Amounts{CPU: 2000, Memory: 4 * gi}, elasticrequest.Amounts{CPU: 3000, Memory: 4 * gi}}},
		},
		{
			name: "resources of the pod and of containers",
			pod: corev1.Pod{Spec: corev1.PodSpec{
				Resources:      &corev1.ResourceRequirements{Requests: list("2", ""), Limits: list("3", "")},
				InitContainers: []corev1.Container{sidecar},
				Containers:     []corev1.Container{newContainer("main", list("500m", "1Gi"), list("1", "")), {Name: "other"}},
			}},
			want: map[string]Resources{
				"mesh":  {elasticrequest.Amounts{CPU: 1500}, elasticrequest.Amounts{CPU: 3000}},
				"main":  {elasticrequest.Amounts{CPU: 1900, Memory: gi}, elasticrequest.Amounts{CPU: 1000}},
				"other": {elasticrequest.Amounts{CPU: 1400}, elasticrequest.Amounts{CPU: 3000}},
			},
		},
		{
			name: "resize of a container down, not completed",
			pod: corev1.Pod{
				Spec: corev1.PodSpec{Containers: []corev1.Container{newContainer("main", list("500m", ""), list("1", ""))}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
					Name: "main", Resources: &corev1.ResourceRequirements{Requests: list("2", ""), Limits: list("4", "")},
				}}},
			},
			want: map[string]Resources{"main": {elasticrequest.Amounts{CPU: 2000}, elasticrequest.Amounts{CPU: 4000}}},
		},
		{
			name: "infeasible resize of the pod",
			pod: corev1.Pod{
				Spec: corev1.PodSpec{
					Resources:  &corev1.ResourceRequirements{Requests: list("64", "")},
					Containers: []corev1.Container{{Name: "main"}},
				},
				Status: corev1.PodStatus{
					Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}},
					Resources:  &corev1.ResourceRequirements{Requests: list("2", "")},
				},
			},
			want: map[string]Resources{"main": {Request: elasticrequest.Amounts{CPU: 2000}}},
		},
		{
			name: "overhead is nobody's",
			pod: corev1.Pod{Spec: corev1.PodSpec{
				Overhead:   list("250m", "128Mi"),
				Resources:  &corev1.ResourceRequirements{Requests: list("1", "")},
				Containers: []corev1.Container{{Name: "main"}},
			}},
			want: map[string]Resources{"main": {Request: elasticrequest.Amounts{CPU: 1000}}},
		},
	}

	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Containers(&test.pod)); diff != "" {
				t.Errorf("Containers: (-want +got)\n%s", diff)
			}
		})
	}
}
