// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

func podOn(node, name, cpu string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func sizeOf(cpu units.MilliCPU) adoption.Size {
	return adoption.Size{Containers: map[string]rightsize.Resources{"app": {CPURequest: &cpu}}}
}

// TestReadNodeRoom checks that the room of a node is what its pods do not request, without pods that have ended, shared by the pods with a
// demand, and that pods without one have none.
func TestReadNodeRoom(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	full := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
	full.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	pods := []*corev1.Pod{
		podOn("one", "web-0", "1", corev1.PodRunning), podOn("one", "web-1", "1", corev1.PodRunning), podOn("one", "web-2", "1", corev1.PodRunning),
		podOn("full", "web-3", "2", corev1.PodRunning), podOn("", "web-4", "1", corev1.PodPending), podOn("gone", "web-5", "1", corev1.PodRunning),
	}

	objects := []client.Object{node, full, podOn("one", "db", "2", corev1.PodRunning), podOn("one", "done", "5", corev1.PodSucceeded)}
	s := &TargetSnapshot{}
	for _, p := range pods {
		objects = append(objects, p)
		s.Pods = append(s.Pods, *p)
	}

	reader := SnapshotReader{Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()}
	read := func(names ...string) ([]string, error) {
		var demands []adoption.Demand
		for _, name := range names {
			demands = append(demands, adoption.Demand{Pod: name, Container: "app", Use: 1500})
		}

		var input []adoption.Pod
		for i := range s.Pods {
			input = append(input, ConvertPod(&s.Pods[i]))
		}

		err := reader.ReadRoom(t.Context(), s, demands, input)
		var out []string
		for _, p := range input {
			text := "-"
			if p.Room != nil {
				text = fmt.Sprint(*p.Room)
			}

			out = append(out, text)
		}

		return out, err
	}

	for want, names := range map[string][]string{
		"[3000 - - - - -]":    {"web-0"},
		"[1500 1500 - - - -]": {"web-0", "web-1", "web-3", "web-4"}, // web-3 requests more than its demand.
		"[- - - - - -]":       {"db"},
	} {
		if got, err := read(names...); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v: %v, %v, want %s", names, got, err, want)
		}
	}

	if _, err := read("web-5"); err == nil {
		t.Error("reading the room of a node that does not exist returned no error, want one")
	}

	s.Pods[3].Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	if got, err := read("web-3"); err != nil || got[3] != "0" {
		t.Errorf("room = %v, error %v, want 0 where more is requested than the node has", got, err)
	}
}

// TestRequestsInForce checks that the requests are those of the template before adoption and of the state after it, and none where
// adoption does not act.
func TestRequestsInForce(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec = podOn("", "x", "700m", "").Spec
	cpu := func() units.MilliCPU {
		size, _, ok := RequestsInForce(d, nil)
		if c := size.Containers["app"].CPURequest; ok && c != nil {
			return *c
		}

		return 0
	}

	if got := cpu(); got != 700 {
		t.Errorf("%v, want that of the template", got)
	}

	limited := podOn("", "x", "700m", "").Spec
	limited.Containers[0].Resources = corev1.ResourceRequirements{}
	for _, name := range []corev1.ResourceName{"", corev1.ResourceCPU} {
		ranges := []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m")},
		}}}}}
		want := units.MilliCPU(400)
		if name != "" { // A limit of the template comes first.
			limited.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("2")}
			want = 2000
		}

		size, _, ok := RequestsInForce(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: limited}}}, ranges)
		if got := size.Containers["app"].CPURequest; !ok || got == nil || *got != want {
			t.Errorf("RequestsInForce without a request in the template = %s, want %d", size, want)
		}
	}

	probe := adoption.State{Phase: adoption.Resting, Original: sizeOf(700), Current: sizeOf(500)}
	for phase, want := range map[adoption.Phase]units.MilliCPU{adoption.Resting: 500, adoption.Lowering: 500, adoption.Stopped: 0, adoption.Withdrawing: 0} {
		probe.Phase = phase
		encoded, err := probe.Encode()
		if err != nil {
			t.Fatal(err)
		}

		d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoption: encoded}
		if got := cpu(); got != want {
			t.Errorf("%s: %v, want %v", phase, got, want)
		}
	}

	d.Annotations[analysisv1alpha1.AnnotationAdoption] = "{"
	if got := cpu(); got != 0 {
		t.Errorf("RequestsInForce with a state that cannot be read: CPU %v, want none", got)
	}

	d.Annotations = nil
	d.Labels = map[string]string{analysisv1alpha1.LabelOptOut: "true"}

	if got := cpu(); got != 0 {
		t.Errorf("RequestsInForce of a workload that has opted out: CPU %v, want none", got)
	}
}
