// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FuzzObserve passes pods with arbitrary valid specs and statuses to a node and steps them: it must neither panic nor
// move a pod back in its phase.
func FuzzObserve(f *testing.F) {
	w := newFixture(&testing.T{})
	for _, edit := range []func(*corev1.Pod){
		func(*corev1.Pod) {},
		func(p *corev1.Pod) {
			p.Annotations = map[string]string{AnnotationDuration: "1s", AnnotationExitCode: "7"}
		},
		func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init"}} },
	} {
		pod := newPod("web", "500m", "256Mi", edit)
		for _, state := range []corev1.ContainerState{
			{}, {Running: &corev1.ContainerStateRunning{}}, {Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}, {Waiting: &corev1.ContainerStateWaiting{}},
		} {
			start := stamp(w.now)
			pod.Status = corev1.PodStatus{
				Phase: corev1.PodRunning, StartTime: &start, PodIP: "10.192.0.9",
				ContainerStatuses: []corev1.ContainerStatus{{Name: "web", State: state}},
			}

			data, err := json.Marshal(pod)
			if err != nil {
				f.Fatal(err)
			}

			f.Add(data)
		}
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		var pod corev1.Pod
		if json.Unmarshal(data, &pod) != nil {
			return
		}

		pod.UID = types.UID("uid")
		pod.Spec.NodeName = "n1"
		w := newFixture(t)
		w.load["web"] = Use{CPU: 1, Memory: 1 << 30, Known: true}
		w.node.Observe(&pod, w.now)

		last := 0
		if p := pod.Status.Phase; p == corev1.PodSucceeded || p == corev1.PodFailed {
			last = 2
		}

		for range 20 {
			out := w.node.Step(pod.UID, w.now)
			if out.Pod == nil {
				t.Fatal("Step returned no pod, want the pod until it is removed")
			}

			r := rank(out.Pod.Status.Phase)
			if r < last {
				t.Fatalf("phase after a step = %s, want none before the last one", out.Pod.Status.Phase)
			}

			last = r
			w.node.Observe(out.Pod, w.now)
			w.node.Measure(w.load, w.now)
			w.node.Dirty()
			w.node.Containers(nil, true)
			w.now = w.now.Add(700 * time.Millisecond)
		}
	})
}
