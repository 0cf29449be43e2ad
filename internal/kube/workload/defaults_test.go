// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"crane.io/crane/pkg/units"
)

func cpuList(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
}

// TestFromObject_EffectiveRequests checks that a container has the requests of pods, and that Declared is about the template.
func TestFromObject_EffectiveRequests(t *testing.T) {
	ranges := []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: cpuList("500m"), DefaultRequest: cpuList("100m"),
	}}}}}

	for _, test := range []struct {
		name      string
		resources corev1.ResourceRequirements
		ranges    []corev1.LimitRange
		want      Container
	}{
		{
			"a limit",
			corev1.ResourceRequirements{Limits: cpuList("2")},
			ranges,
			Container{Requests: Resources{CPU: 2000}, Limits: Resources{CPU: 2000}, Declared: Declared{Resources: true, Limits: true, CPULimit: true}},
		},
		{"a LimitRange", corev1.ResourceRequirements{}, ranges, Container{Requests: Resources{CPU: 100}, Limits: Resources{CPU: 500}}},
		{"neither", corev1.ResourceRequirements{}, nil, Container{}},
		{
			"a request of 0",
			corev1.ResourceRequirements{Requests: cpuList("0"), Limits: cpuList("2")},
			ranges,
			Container{Limits: Resources{CPU: 2000}, Declared: Declared{Resources: true, Requests: true, Limits: true, CPURequest: true, CPULimit: true}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &appsv1.Deployment{}
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Resources: test.resources}}
			got, err := FromObject(d, schema.GroupVersionKind{Kind: "Deployment"}, test.ranges)
			if err != nil {
				t.Fatal(err)
			}

			test.want.Name = "app"
			test.want.Role = App
			if diff := cmp.Diff([]Container{test.want}, got.Containers); diff != "" {
				t.Errorf("FromObject (-want +got):\n%s", diff)
			}
		})
	}

	// A pod that exists has what it has: a LimitRange acts at creation.
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	if got, err := FromObject(pod, schema.GroupVersionKind{Kind: "Pod"}, ranges); err != nil || got.Containers[0].Requests.CPU != 0 {
		t.Errorf("FromObject of a pod without a request = %+v, error %v, want no request", got.Containers, err)
	}
}

// TestPodRequests_PodLevel checks that the requests of the pod level stand for those of the containers.
func TestPodRequests_PodLevel(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: cpuList("1")}}, {Name: "side"}}
	d.Spec.Template.Spec.Resources = &corev1.ResourceRequirements{Limits: cpuList("4")}
	d.Spec.Template.Spec.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1Gi")

	w, err := FromObject(d, schema.GroupVersionKind{Kind: "Deployment"}, nil)
	if err != nil {
		t.Fatal(err)
	}

	// The API server takes the sum of the containers before the limit.
	if sum, unrequested := w.PodRequests(); sum != (Resources{CPU: 1000, Memory: 1 << 30}) || unrequested != "" {
		t.Errorf("PodRequests = %+v, without a request %q, want 1 core, 1 GiB and none", sum, unrequested)
	}
}

// TestList_Defaults checks that each workload gets the defaults of its own namespace, and what happens where they may not be read.
func TestList_Defaults(t *testing.T) {
	defaults := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "defaults"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: cpuList("300m")}}},
	}
	objects := []client.Object{deploymentNamed("a", "web", nil), deploymentNamed("b", "web", nil), defaults}
	query := Query{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")}

	list := func(l *Lister) (map[string]Resources, error) {
		out := map[string]Resources{}
		err := l.List(t.Context(), query, func(w Workload) error {
			sum, _ := w.PodRequests()
			out[w.Namespace] = sum
			return nil
		})

		return out, err
	}

	l, _ := newLister(t, 10, interceptor.Funcs{}, objects...)
	got, err := list(l)
	if diff := cmp.Diff(map[string]Resources{"a": {CPU: 550, Memory: 128 << 20}, "b": {CPU: 250, Memory: 128 << 20}}, got); err != nil || diff != "" {
		t.Errorf("List, error %v (-want +got):\n%s", err, diff)
	}

	l, _ = newLister(t, 10, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*corev1.LimitRangeList); ok {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "limitranges"}, "", nil)
		}

		return c.List(ctx, list, opts...)
	}}, objects...)

	if _, err := list(l); !apierrors.IsForbidden(err) {
		t.Errorf("List without the right to read LimitRanges: error %v, want that it is forbidden", err)
	}

	var reported []error
	l.WithoutDefaults = func(err error) { reported = append(reported, err) }
	got, err = list(l)
	if diff := cmp.Diff(map[string]Resources{"a": {CPU: 250, Memory: 128 << 20}, "b": {CPU: 250, Memory: 128 << 20}}, got); err != nil || diff != "" || len(reported) != 1 {
		t.Errorf("List without defaults: error %v, %d reports, want none and one (-want +got):\n%s", err, len(reported), diff)
	}
}

// TestGet_Observed checks that requests which another webhook sets are those of the pods, and that a size which adoption set is not.
func TestGet_Observed(t *testing.T) {
	bare := func(change ...func(*appsv1.Deployment)) *appsv1.Deployment {
		d := deploymentNamed("shop", "web", nil)
		d.Spec.Replicas = new(int32(2))
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		d.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
		for _, f := range change {
			f(d)
		}

		return d
	}

	pod := func(name, owner, cpu string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, Controller: new(true)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy"}, {Name: "app", Resources: corev1.ResourceRequirements{Requests: cpuList(cpu)}}}},
		}
	}

	for _, test := range []struct {
		name    string
		objects []client.Object
		want    Resources
	}{
		{"a webhook", []client.Object{bare(), pod("a", "web-5d4f", "700m")}, Resources{CPU: 700}},
		{"no pod", []client.Object{bare()}, Resources{}},
		{"the pod of another workload", []client.Object{bare(), pod("a", "shop-5d4f", "700m")}, Resources{}},
		{
			"adopted", []client.Object{bare(func(d *appsv1.Deployment) {
				d.Annotations = map[string]string{"analysis.crane.io/adoption": "{}"}
			}), pod("a", "web-5d4f", "700m")}, Resources{},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, _ := newLister(t, 10, interceptor.Funcs{}, test.objects...)
			got, err := l.Get(t.Context(), appsv1.SchemeGroupVersion.WithKind("Deployment"), client.ObjectKey{Namespace: "shop", Name: "web"})
			if err != nil {
				t.Fatal(err)
			}

			if len(got.Containers) != 1 || got.Containers[0].Requests != test.want {
				t.Errorf("Get = containers %+v, want app alone with %+v", got.Containers, test.want)
			}
		})
	}
}

// TestList_ObservedOfMany checks that the pods of a namespace with many workloads without requests are listed once for all of them, that each
// workload gets its own, and that injected containers count in the sum.
func TestList_ObservedOfMany(t *testing.T) {
	const workloads = 60
	var objects []client.Object
	for i := range workloads {
		name := fmt.Sprintf("web-%d", i)
		labels := map[string]string{"app": name}
		d := deploymentNamed("shop", name, nil)
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name + "-5d4f-a", Labels: labels,
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name + "-5d4f", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "app", Resources: corev1.ResourceRequirements{Requests: cpuList(fmt.Sprintf("%dm", 100+i))}},
				{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: cpuList("10m")}},
			}},
		}
		objects = append(objects, d, pod)
	}

	const pageSize = 50
	podLists := 0
	l, _ := newLister(t, pageSize, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*corev1.PodList); ok {
			podLists++
		}

		return page(ctx, c, list, opts)
	}}, objects...)

	got := 0
	err := l.List(t.Context(), Query{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Namespace: "shop"}, func(w Workload) error {
		got++
		var i int
		if _, err := fmt.Sscanf(w.Name, "web-%d", &i); err != nil {
			return err
		}

		if sum, _ := w.PodRequests(); sum.CPU != units.MilliCPU(110+i) {
			t.Errorf("PodRequests of %s = %+v, want %dm of CPU: its own pod with the injected container", w.Name, sum, 110+i)
		}

		return nil
	})

	if want := maxPodLists + (workloads+pageSize-1)/pageSize; err != nil || got != workloads || podLists > want {
		t.Errorf("List returned %d workloads, error %v, after %d lists of pods, want %d, none and at most %d", got, err, podLists, workloads, want)
	}
}
