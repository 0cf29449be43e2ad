// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/oom"
)

var ended = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func resources(request, limit string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{}
	if request != "" {
		r.Requests = corev1.ResourceList{corev1.ResourceMemory: apiresource.MustParse(request)}
	}
	if limit != "" {
		r.Limits = corev1.ResourceList{corev1.ResourceMemory: apiresource.MustParse(limit)}
	}

	return r
}

func terminated(reason, id string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: reason, ExitCode: 137, ContainerID: id, FinishedAt: ended}
}

func podWith(r corev1.ResourceRequirements, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "sidecar", Resources: r}},
			Containers:     []corev1.Container{{Name: "app", Resources: r}},
		},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "sidecar"}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "app"}},
		},
	}

	change(p)
	return p
}

func TestDetectKills(t *testing.T) {
	const mib = 1 << 20
	both := resources("100Mi", "200Mi")
	for name, c := range map[string]struct {
		resources corev1.ResourceRequirements
		change    func(*corev1.Pod)
		want      []string
	}{
		"nothing": {both, func(*corev1.Pod) {}, nil},
		"a crash": {both, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated = terminated("Error", "a") }, nil},
		"current": {both, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated = terminated("OOMKilled", "a") }, []string{"app OOMKilled 200"}},
		"last": {both, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = terminated("OOMKilled", "a")
		}, []string{"app OOMKilled 200"}},
		"two runs": {both, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = terminated("OOMKilled", "a")
			p.Status.ContainerStatuses[0].State.Terminated = terminated("OOMKilled", "b")
		}, []string{"app OOMKilled 200", "app OOMKilled 200"}},
		"init or sidecar": {both, func(p *corev1.Pod) {
			p.Status.InitContainerStatuses[0].LastTerminationState.Terminated = terminated("OOMKilled", "a")
		}, []string{"sidecar OOMKilled 200"}},
		"request only": {resources("100Mi", ""), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated = terminated("OOMKilled", "a")
		}, []string{"app OOMKilled 100 without a limit"}},
		"best effort": {resources("", ""), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated = terminated("OOMKilled", "a")
		}, []string{"app OOMKilled 0 without a limit"}},
		"limit in force": {both, func(p *corev1.Pod) {
			inForce := resources("100Mi", "150Mi")
			p.Status.ContainerStatuses[0].Resources = &inForce
			p.Status.ContainerStatuses[0].State.Terminated = terminated("OOMKilled", "a")
		}, []string{"app OOMKilled 150"}},
		"a container that the spec has not": {both, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "x", State: corev1.ContainerState{Terminated: terminated("OOMKilled", "a")}})
		}, []string{"x OOMKilled 0"}},
		"evicted": {both, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Reason = "Evicted"
			p.Status.Message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container app was using 300Mi, request is 100Mi, has larger consumption of memory. "
		}, []string{"app Evicted 300"}},
		"evicted, no container named": {both, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Reason = "Evicted"
			p.Status.Message = "The node was low on resource: memory. "
		}, []string{"app Evicted 200 without a limit"}},
		"evicted for its disk": {both, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Reason = "Evicted"
			p.Status.Message = "The node was low on resource: ephemeral-storage. "
		}, nil},
		"a message of nonsense": {both, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Reason = "Evicted"
			p.Status.Message = "low on resource: memory Container app was using NaN, request is -, has larger consumption of memory."
		}, []string{"app Evicted 0"}},
	} {
		var got []string
		ids := map[string]bool{}
		for _, k := range DetectKills(podWith(c.resources, c.change)) {
			text := fmt.Sprintf("%s %s %d", k.Container, k.Cause, k.Memory/mib)
			if k.NoLimit {
				text += " without a limit"
			}
			got = append(got, text)

			if k.Namespace != "shop" || k.Pod != "web-1" || k.ID == "" || ids[k.ID] {
				t.Errorf("%s: DetectKills returned %+v, want an ID of its own in pod shop/web-1", name, k)
			}

			ids[k.ID] = true
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestDetectKills_SameKillInThreeStates: a kill is the same one while the container waits for its restart and after it.
func TestDetectKills_SameKillInThreeStates(t *testing.T) {
	var seen []oom.Kill
	for _, change := range []func(*corev1.ContainerStatus){
		func(s *corev1.ContainerStatus) { s.State.Terminated = terminated("OOMKilled", "run-1") },
		func(s *corev1.ContainerStatus) {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			s.LastTerminationState.Terminated = terminated("OOMKilled", "run-1")
		},
		func(s *corev1.ContainerStatus) {
			s.RestartCount = 1
			s.State.Running = &corev1.ContainerStateRunning{}
			s.LastTerminationState.Terminated = terminated("OOMKilled", "run-1")
		},
	} {
		seen = append(seen, DetectKills(podWith(resources("1Gi", ""), func(p *corev1.Pod) { change(&p.Status.ContainerStatuses[0]) }))...)
	}

	l := &oom.Ledger{}
	if added := l.Add(seen, ended.Time, oom.Limits{Count: 10, Bytes: 1000, Age: time.Hour}); len(seen) != 3 || len(added) != 1 {
		t.Errorf("saw %d kills and recorded %d, want 3 and 1", len(seen), len(added))
	}
}

// FuzzEviction: no message of a kubelet, real or not, breaks the recorder.
func FuzzEviction(f *testing.F) {
	f.Add("The node was low on resource: memory. Container app was using 300Mi, request is 100Mi, has larger consumption of memory. ")
	f.Add("The node was low on resource: memory. Container a was using 1e400, request is 9999999999999999999999, has larger consumption of memory.")
	f.Fuzz(func(t *testing.T, message string) {
		for _, k := range DetectKills(podWith(resources("1Gi", ""), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Reason = "Evicted"
			p.Status.Message = message
		})) {
			if k.Memory < 0 || k.Container == "" || strings.ContainsAny(k.Container, " \n") {
				t.Fatalf("DetectKills returned %+v, want a container and an amount of at least 0", k)
			}
		}
	})
}
