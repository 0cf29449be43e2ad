// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var rolloutKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Rollout"}

func deploymentNamed(namespace, name string, l map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: l},
		Spec:       appsv1.DeploymentSpec{Template: podTemplate()},
	}
}

func customNamed(kind schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)

	return u
}

// newLister serves the objects page by page, as an API server does and the fake client does not.
func newLister(t *testing.T, pageSize int64, funcs interceptor.Funcs, objects ...client.Object) (*Lister, *int) {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	known := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}

	known.AddKnownTypeWithName(rolloutKind, &unstructured.Unstructured{})
	known.AddKnownTypeWithName(rolloutKind.GroupVersion().WithKind("RolloutList"), &unstructured.UnstructuredList{})

	pages := 0
	if funcs.List == nil {
		funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			pages++
			return page(ctx, c, list, opts)
		}
	}

	c := fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	source := Source{Reader: c, PageSize: pageSize}
	return &Lister{Sources: func(schema.GroupVersionKind) Source { return source }, Scales: c, Scheme: scheme}, &pages
}

func page(ctx context.Context, c client.WithWatch, list client.ObjectList, opts []client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	limit := o.Limit

	from := 0
	if o.Continue != "" {
		var err error
		if from, err = strconv.Atoi(o.Continue); err != nil {
			return err
		}
	}

	o.Limit, o.Continue = 0, ""
	if err := c.List(ctx, list, &o); err != nil {
		return err
	}

	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}

	items = items[min(from, len(items)):]
	if limit > 0 && int64(len(items)) > limit {
		items = items[:limit]
		list.SetContinue(strconv.Itoa(from + int(limit)))
	}

	return meta.SetList(list, items)
}

func collect(t *testing.T, l *Lister, q Query) []string {
	t.Helper()

	var got []string
	if err := l.List(t.Context(), q, func(w Workload) error {
		got = append(got, w.Ref.String())
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	slices.Sort(got)
	return got
}

func TestList_Pages(t *testing.T) {
	var objects []client.Object
	var want []string
	for i := range 25 {
		name := fmt.Sprintf("d%02d", i)
		objects = append(objects, deploymentNamed("ns", name, map[string]string{"name": name}))
		want = append(want, "ns/Deployment/"+name)
	}

	l, pages := newLister(t, 10, interceptor.Funcs{}, objects...)
	kept := map[string]Workload{}
	err := l.List(t.Context(), Query{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")}, func(w Workload) error {
		kept[w.Name] = w
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for name, w := range kept {
		got = append(got, w.Ref.String())
		if w.Labels["name"] != name {
			t.Errorf("the labels of %s are %v, want those of its own page", name, w.Labels)
		}
	}

	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || *pages != 4 {
		t.Errorf("List read %d pages, want 3 and one of LimitRanges (-want +got):\n%s", *pages, diff)
	}
}

func TestList_Selectors(t *testing.T) {
	template := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app"}}}}}
	l, _ := newLister(t, 0, interceptor.Funcs{},
		deploymentNamed("a", "web", map[string]string{"app": "web"}), deploymentNamed("a", "db", nil), deploymentNamed("b", "web", nil),
		customNamed(rolloutKind, "a", "canary", template))

	deployments := appsv1.SchemeGroupVersion.WithKind("Deployment")
	for name, c := range map[string]struct {
		q    Query
		want []string
	}{
		"all":           {Query{Kind: deployments}, []string{"a/Deployment/db", "a/Deployment/web", "b/Deployment/web"}},
		"namespace":     {Query{Kind: deployments, Namespace: "a"}, []string{"a/Deployment/db", "a/Deployment/web"}},
		"name":          {Query{Kind: deployments, Name: "web"}, []string{"a/Deployment/web", "b/Deployment/web"}},
		"one":           {Query{Kind: deployments, Namespace: "b", Name: "web"}, []string{"b/Deployment/web"}},
		"none":          {Query{Kind: deployments, Namespace: "b", Name: "db"}, nil},
		"labels":        {Query{Kind: deployments, Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, []string{"a/Deployment/web"}},
		"one by labels": {Query{Kind: deployments, Namespace: "b", Name: "web", Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, nil},
		"custom":        {Query{Kind: rolloutKind}, []string{"a/Rollout/canary"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, collect(t, l, c.q)); diff != "" {
				t.Errorf("List (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGet_ScaleSubresource checks that a custom kind without a template is read through its scale and one of its pods.
func TestGet_ScaleSubresource(t *testing.T) {
	scales := func(selector string) interceptor.Funcs {
		return interceptor.Funcs{SubResourceGet: func(_ context.Context, _ client.Client, _ string, obj, sub client.Object, _ ...client.SubResourceGetOption) error {
			// A client accepts an unstructured scale of an unstructured object, and no other.
			scale, ok := sub.(*unstructured.Unstructured)
			if !ok || obj.GetName() != "x" {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "rollouts/scale"}, obj.GetName())
			}

			scale.SetNamespace(obj.GetNamespace())
			return errors.Join(unstructured.SetNestedField(scale.Object, int64(5), "spec", "replicas"),
				unstructured.SetNestedField(scale.Object, selector, "status", "selector"))
		}}
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x-1", Labels: map[string]string{"app": "x"}}, Spec: podTemplate().Spec}
	kind := Query{Kind: rolloutKind, Namespace: "ns", Name: "x"}
	read := func(name, selector string, objects ...client.Object) (Workload, error) {
		l, _ := newLister(t, 0, scales(selector), append(objects, customNamed(rolloutKind, "ns", name, map[string]any{}))...)
		return l.Get(t.Context(), kind.Kind, client.ObjectKey{Namespace: "ns", Name: name})
	}

	w, err := read("x", "app=x", pod)
	if err != nil || w.Replicas != 5 || len(w.Containers) != 3 {
		t.Errorf("reading a scaled object = %+v, %v, want 5 replicas and 3 containers", w, err)
	}
	if w, err = read("x", "app=y", pod); err != nil || len(w.Containers) != 0 {
		t.Errorf("reading an object without pods = %+v, %v, want no containers", w, err)
	}

	for name, c := range map[string][2]string{
		"without a scale": {"other", "app=x"}, "without a selector": {"x", ""}, "with a broken selector": {"x", "a in ("},
	} {
		if _, err := read(c[0], c[1], pod); err == nil {
			t.Errorf("reading a kind %s = nil, want an error", name)
		}
	}
}

func TestInventory(t *testing.T) {
	owned := func(o client.Object, apiVersion, kind, owner string) client.Object {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner, Controller: new(true)}})
		return o
	}
	pod := func(name string) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: podTemplate().Spec}
	}
	set := func(name string) client.Object {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: appsv1.ReplicaSetSpec{Template: podTemplate()}}
	}

	job := func(name string) client.Object {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: batchv1.JobSpec{Template: podTemplate()}}
	}
	l, _ := newLister(t, 2, interceptor.Funcs{},
		deploymentNamed("ns", "web", nil), deploymentNamed("other", "web", nil),
		owned(set("web-1"), "apps/v1", "Deployment", "web"), owned(pod("web-1-a"), "apps/v1", "ReplicaSet", "web-1"),
		owned(set("canary-1"), rolloutKind.GroupVersion().String(), "Rollout", "canary"), owned(pod("canary-1-a"), "apps/v1", "ReplicaSet", "canary-1"),
		owned(pod("canary-1-b"), "apps/v1", "ReplicaSet", "canary-1"),
		customNamed(rolloutKind, "ns", "canary", map[string]any{"replicas": int64(2), "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app"}}}}}),
		owned(pod("ghost-a"), rolloutKind.GroupVersion().String(), "Rollout", "ghost"),
		job("once"), owned(pod("once-a"), "batch/v1", "Job", "once"),
		owned(&corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cart-4"}}, "apps.openshift.io/v1", "DeploymentConfig", "cart"),
		owned(pod("cart-4-a"), "v1", "ReplicationController", "cart-4"),
		owned(pod("static"), "v1", "Node", "n1"), pod("bare"),
		&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "night"}},
	)

	all, err := l.Inventory(t.Context(), []string{"ns"})
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]int{}
	for _, w := range all {
		got[w.Ref.String()] = len(w.Containers)
	}

	// ghost is deleted or not readable: one of its pods has the containers.
	want := map[string]int{
		"ns/Deployment/web": 3, "ns/CronJob/night": 0, "ns/Rollout/canary": 1, "ns/Rollout/ghost": 3, "ns/Job/once": 3, "ns/Pod/bare": 3,
		"ns/DeploymentConfig/cart": 3,
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Inventory (-want +got):\n%s", diff)
	}
}

func TestList_Errors(t *testing.T) {
	boom := errors.New("boom")
	l, _ := newLister(t, 0, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return boom },
	})

	if _, err := l.Inventory(t.Context(), nil); !errors.Is(err, boom) {
		t.Errorf("Inventory = %v, want %v", err, boom)
	}

	l, _ = newLister(t, 0, interceptor.Funcs{}, deploymentNamed("a", "web", nil))
	stop := errors.New("stop")
	err := l.List(t.Context(), Query{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")}, func(Workload) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("List = %v, want the error of visit, %v", err, stop)
	}
}
