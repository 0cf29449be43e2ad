// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package effectiveresources

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podOf returns a pod of an age in minutes with a container app of these requests, and one that was injected.
func podOf(age int, requests corev1.ResourceList, managers ...string) corev1.Pod {
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: cpu("50m")}},
		{Name: "app", Resources: corev1.ResourceRequirements{Requests: requests}},
	}}}

	pod.CreationTimestamp = metav1.NewTime(time.Unix(0, 0).Add(-time.Duration(age) * time.Minute))
	for _, subresource := range managers {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: "someone", Subresource: subresource})
	}

	return pod
}

func cpu(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(text)}
}

// TestWithObserved checks which pod counts, and that it changes no amount that the template has.
func TestWithObserved(t *testing.T) {
	for _, test := range []struct {
		name     string
		template corev1.ResourceList
		pods     []corev1.Pod
		want     map[string]corev1.ResourceList
	}{
		{"no pods", nil, nil, map[string]corev1.ResourceList{}},
		{
			"the newest pod", nil,
			[]corev1.Pod{podOf(9, cpu("2")), podOf(1, cpu("1"), "", "status"), podOf(5, cpu("3"))},
			map[string]corev1.ResourceList{"app requests": cpu("1"), "proxy requests": cpu("50m")},
		},
		{
			"not a resized pod", nil,
			[]corev1.Pod{podOf(9, cpu("2")), podOf(1, cpu("1"), "", "resize")},
			map[string]corev1.ResourceList{"app requests": cpu("2"), "proxy requests": cpu("50m")},
		},
		{
			"the newest of resized pods", nil,
			[]corev1.Pod{podOf(1, cpu("1"), "resize"), podOf(5, cpu("2"), "resize")},
			map[string]corev1.ResourceList{"app requests": cpu("1"), "proxy requests": cpu("50m")},
		},
		{
			"the template first", cpu("500m"),
			[]corev1.Pod{podOf(1, cpu("1"))},
			map[string]corev1.ResourceList{"app requests": cpu("500m"), "proxy requests": cpu("50m")},
		},
		{
			"a request of 0 is an amount", cpu("0"),
			[]corev1.Pod{podOf(1, cpu("1"))},
			map[string]corev1.ResourceList{"app requests": cpu("0"), "proxy requests": cpu("50m")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			template := &corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: test.template}}}}
			got := resourcesOf(WithObserved(NewPod(template, nil), test.pods))
			if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b apiresource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
				t.Errorf("WithObserved with %d pods (-want +got):\n%s", len(test.pods), diff)
			}
		})
	}
}

// TestWithObservedOverhead checks that the overhead and the pod level of a runtime class or a webhook are those of the pods.
func TestWithObservedOverhead(t *testing.T) {
	pod := podOf(1, cpu("1"))
	pod.Spec.Overhead = cpu("120m")
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("4")}

	got := WithObserved(&corev1.PodSpec{}, []corev1.Pod{pod})
	if got.Overhead.Cpu().MilliValue() != 120 || got.Resources == nil || got.Resources.Requests.Cpu().MilliValue() != 4000 {
		t.Errorf("WithObserved of a pod with an overhead = %v and %v, want 120m and 4", got.Overhead, got.Resources)
	}
}
