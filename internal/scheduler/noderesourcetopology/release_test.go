// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// TestReleasedZones checks which changes of a running pod free its zones for others, in the account and as an event.
func TestReleasedZones(t *testing.T) {
	cpus := func(text string) corev1.ResourceRequirements {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
		return corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	resized := func(spec, applied string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = cpus(spec)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: new(cpus(applied))}}
		}
	}

	for _, test := range []struct {
		name     string
		change   func(*corev1.Pod)
		released bool
	}{
		{"policy none", func(p *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, topology.AnnotationPodCPUPolicy, topology.CPUPolicyNone)
		}, true},
		{"another policy", func(p *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, topology.AnnotationPodCPUPolicy, "numa")
		}, false},
		{"succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		{"failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		{"terminating", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false},
		{"resized to shared CPUs, not applied", resized("3500m", "4"), false},
		{"resized to shared CPUs", resized("3500m", "3500m"), true},
		{"resized to whole CPUs, not applied", resized("4", "3500m"), false},
		{"a label", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
	} {
		// A pod of a copied manifest may have the right annotation before it is placed, and stays assumed.
		const copied = `[{"name":"node1","type":"Node","resources":{"capacity":{"cpu":"4"}}}]`
		for name, pod := range map[string]*corev1.Pod{
			test.name:                newPod("b", "4"),
			test.name + " of a copy": newPod("b", "4", annotated(topology.AnnotationPodTopologyResult, copied)),
		} {
			for _, waits := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s while a pod waits %t", name, waits), func(t *testing.T) {
					testReleasedZones(t, pod.DeepCopy(), test.change, waits, test.released)
				})
			}
		}
	}
}

// testReleasedZones checks whether a change of a running pod on a full node frees its zones. The scheduler reports it as an event only while
// another pod waits.
func testReleasedZones(t *testing.T, pod *corev1.Pod, change func(*corev1.Pod), waits, released bool) {
	t.Helper()

	f := newPlugin(t, nrt("n", 4, 4))
	for _, p := range []*corev1.Pod{newPod("a", "4"), pod} {
		if s := f.reserve(t, p, "n"); !s.IsSuccess() {
			t.Fatalf("Reserve of pod %s = %v, want a success", p.Name, s)
		}
	}

	b := f.bound(pod, "n")
	waiting := newPod("c", "4")
	if _, s := f.filter(t, waiting, "n"); s.IsSuccess() {
		t.Fatal("Filter on a full node succeeded, want a rejection")
	}

	changed := b.DeepCopy()
	change(changed)
	if waits {
		want := map[bool]fwk.QueueingHint{true: fwk.Queue, false: fwk.QueueSkip}[released]
		if got, err := f.podUpdated(klog.Background(), waiting, b, changed); err != nil || got != want {
			t.Errorf("podUpdated = %v, %v, want %v", got, err, want)
		}
	}

	f.info("n").remove("b")
	f.info("n").add(changed)
	if _, s := f.filter(t, waiting, "n"); s.IsSuccess() != released {
		t.Errorf("Filter = %v, want a success: %t", s, released)
	}
}
