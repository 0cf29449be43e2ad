// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/pkg/nodeload"
)

func TestWorkloadOf(t *testing.T) {
	withHash := owned(newPod("p", "1", "1Gi"), "ReplicaSet", "web-7d9f")
	withHash.Labels = map[string]string{hashLabel: "7d9f"}
	loose := owned(newPod("p", "1", "1Gi"), "ReplicaSet", "web-7d9f")

	loose.Labels = map[string]string{hashLabel: "other"}
	for _, c := range []struct {
		pod        *corev1.Pod
		kind, name string
	}{
		{withHash, "Deployment", "web"},
		{loose, "ReplicaSet", "web-7d9f"},
		{owned(newPod("p", "1", "1Gi"), "Job", "backup-28954321"), "CronJob", "backup"},
		{owned(newPod("p", "1", "1Gi"), "Job", "backup-2"), "Job", "backup-2"},
		{owned(newPod("p", "1", "1Gi"), "Job", "-12345678"), "Job", "-12345678"},
		{owned(newPod("p", "1", "1Gi"), "StatefulSet", "db"), "StatefulSet", "db"},
		{newPod("p", "1", "1Gi"), "", ""},
	} {
		if w := WorkloadOf(c.pod); w.Kind != c.kind || w.Name != c.name {
			t.Errorf("WorkloadOf(%s) = %v, want %s %s", c.pod.Name, w, c.kind, c.name)
		}
	}
}

func TestPodRequest(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}

	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Requests: list("8", "8Gi")}}, // Ends before the pod lives.
			{RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("100m", "1Gi"), Limits: list("200m", "1Gi")}},
		},
		Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "2Gi")}},
			{Resources: corev1.ResourceRequirements{Limits: list("500m", "1Gi")}},
		},
		Overhead: list("10m", "16Mi"),
	}}

	const gib = 1 << 30
	want := nodeload.PodRequest{
		Request: nodeload.Amount{CPU: 1610, Memory: 3*gib + 16<<20}, Limit: nodeload.Amount{CPU: 2710, Memory: 4*gib + 16<<20},
	}

	if got := podRequest(pod); got != want {
		t.Errorf("podRequest = %+v, want %+v", got, want)
	}

	pod.Spec.Containers[1].Resources.Limits = nil
	if got := podRequest(pod); got.Limit != (nodeload.Amount{}) {
		t.Errorf("podRequest of a pod with an unlimited container has limit %+v, want none", got.Limit)
	}

	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list("4", "4Gi"), Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}}
	if got := podRequest(pod); got.Request.CPU != 4010 || got.Limit.CPU != 5010 || got.Limit.Memory != 0 {
		t.Errorf("podRequest of a pod with its own resources = %+v, want 4010m CPU, limited to 5010m, and memory without a limit", got)
	}
}

func TestRunningSince(t *testing.T) {
	pod := newRunningPod(newPod("p", "1", "1Gi"), "n", start())
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start().Add(time.Minute))}},
	})

	if got := runningSince(pod); !got.Equal(start().Add(time.Minute)) {
		t.Errorf("since %v, want when the last container started", got)
	}

	pod.Status.ContainerStatuses = nil
	pod.Status.StartTime = &metav1.Time{Time: start()}
	if got := runningSince(pod); !got.Equal(start()) {
		t.Errorf("since %v, want when the pod started", got)
	}

	pod.Status.Phase = corev1.PodPending
	if !runningSince(pod).IsZero() {
		t.Error("runningSince of a pending pod is a time, want zero")
	}
}

// TestStartAndEnd checks that an ended pod counts from its start to the end of its last container, as far as
// reported.
func TestStartAndEnd(t *testing.T) {
	ended := func(status corev1.PodStatus, finished ...time.Time) *corev1.Pod {
		pod := bindTo(newPod("p", "1", "1Gi"), "n")
		pod.Status = status
		for _, at := range finished {
			var state corev1.ContainerState
			if !at.IsZero() {
				state.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}
			}

			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{State: state})
		}

		return pod
	}

	began := &metav1.Time{Time: start()}
	now := start().Add(time.Hour)

	early := start().Add(10 * time.Minute)
	late := start().Add(20 * time.Minute)
	done := corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: began}
	for _, c := range []struct {
		name       string
		pod        *corev1.Pod
		start, end time.Time
	}{
		{"succeeded", ended(done, late, early), start(), late},
		{"failed", ended(corev1.PodStatus{Phase: corev1.PodFailed, StartTime: began}, early), start(), early},
		{"deleted while it ran", newRunningPod(newPod("p", "1", "1Gi"), "n", early), early, now},
		{"one container does not say when it ended", ended(done, early, time.Time{}), start(), now},
		{"it says nothing of its containers", ended(done), start(), now},
		{"its clock is ahead", ended(done, now.Add(time.Minute)), start(), now},
		{"it never ran", ended(corev1.PodStatus{Phase: corev1.PodPending, StartTime: began}), time.Time{}, now},
		{"it never got to a kubelet", ended(corev1.PodStatus{Phase: corev1.PodFailed}), time.Time{}, now},
	} {
		if s, e := startOf(c.pod), endOf(c.pod, now); !s.Equal(c.start) || !e.Equal(c.end) {
			t.Errorf("%s: from %v to %v, want %v to %v", c.name, s, e, c.start, c.end)
		}
	}
}

func TestUsageOfRecommendation(t *testing.T) {
	recommendation := func(kind, value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "analysis.crane.io/v1alpha1", "kind": "Recommendation",
			"metadata": map[string]any{"namespace": "shop", "name": "web-resource", "labels": map[string]any{"a": "b"}},
			"spec": map[string]any{
				"type": kind, "targetRef": map[string]any{"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
			},
			"status": map[string]any{"recommendedValue": value, "description": "long"},
		}}
	}

	const value = "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: 250m, memory: 1Gi}\n  - containerName: proxy\n    target: {cpu: 50m, memory: garbage}\n"
	const web = "web"
	for _, c := range []struct {
		name, kind, value string
		want              nodeload.Amount
		ok                bool
	}{
		{"two containers", "Resource", value, nodeload.Amount{CPU: 300, Memory: 1 << 30}, true},
		{"another type", "Replicas", value, nodeload.Amount{}, false},
		{"nothing yet", "Resource", "", nodeload.Amount{}, true},
		{"garbage", "Resource", "{{{", nodeload.Amount{}, true},
		{"a negative amount", "Resource", "resourceRequest: {containers: [{target: {cpu: \"-5\"}}]}", nodeload.Amount{}, true},
	} {
		kept, err := trimRecommendation(recommendation(c.kind, c.value))
		if err != nil {
			t.Fatalf("%s: trimRecommendation: %v, want no error", c.name, err)
		}

		w, use, ok := usageOfRecommendation(kept.(*unstructured.Unstructured))
		if ok != c.ok || use != c.want || ok && w != (Workload{"shop", "Deployment", web}) {
			t.Errorf("%s: usageOfRecommendation = %v, %+v, %v, want the Deployment shop/web, %+v, %v", c.name, w, use, ok, c.want, c.ok)
		}
	}

	kept, _ := trimRecommendation(recommendation("Resource", value))
	if labels := kept.(*unstructured.Unstructured).GetLabels(); labels != nil {
		t.Errorf("trimRecommendation keeps labels %v, want none", labels)
	}
}
