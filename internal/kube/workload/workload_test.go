// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "migrate"},
			{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		},
		Containers: []corev1.Container{{
			Name: "app",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.25"), corev1.ResourceMemory: resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100u"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
		}},
	}}
}

func wantContainers() []Container {
	return []Container{
		{Name: "migrate", Role: Init},
		{Name: "proxy", Role: Sidecar},
		{
			Name: "app", Role: App,
			Requests: Resources{CPU: 250, Memory: 128 << 20},
			// A part of a millicore rounds up, as everywhere in Kubernetes: it must not become "not set".
			Limits: Resources{CPU: 1, Memory: 1 << 30}, Declared: Declared{
				Resources: true, Requests: true, Limits: true,
				CPURequest: true, MemoryRequest: true, CPULimit: true, MemoryLimit: true,
			},
		},
	}
}

func TestFromObject(t *testing.T) {
	om := metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "u", Labels: map[string]string{"a": "b"}}
	rollout := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": "x", "uid": "u", "labels": map[string]any{"a": "b"}},
		"status":   map[string]any{"readyReplicas": int64(2)},
		"spec": map[string]any{"replicas": int64(4), "template": map[string]any{"spec": map[string]any{
			"initContainers": []any{
				map[string]any{"name": "migrate"}, map[string]any{"name": "proxy", "restartPolicy": "Always"},
			},
			"containers": []any{map[string]any{"name": "app", "resources": map[string]any{
				"requests": map[string]any{"cpu": "250m", "memory": "128Mi"}, "limits": map[string]any{"cpu": "100u", "memory": "1Gi"},
			}}},
		}}},
	}}

	for kind, c := range map[string]struct {
		obj      client.Object
		replicas int32
	}{
		"Deployment":  {&appsv1.Deployment{ObjectMeta: om, Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Template: podTemplate()}}, 3},
		"StatefulSet": {&appsv1.StatefulSet{ObjectMeta: om, Spec: appsv1.StatefulSetSpec{Template: podTemplate()}}, 1},
		"ReplicaSet":  {&appsv1.ReplicaSet{ObjectMeta: om, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Template: podTemplate()}}, 0},
		"DaemonSet": {&appsv1.DaemonSet{
			ObjectMeta: om, Spec: appsv1.DaemonSetSpec{Template: podTemplate()},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 7, NumberAvailable: 5},
		}, 7},
		"Job": {&batchv1.Job{ObjectMeta: om, Spec: batchv1.JobSpec{Parallelism: new(int32(2)), Template: podTemplate()}}, 2},
		"CronJob": {&batchv1.CronJob{ObjectMeta: om, Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: podTemplate()}},
		}}, 1},
		"ReplicationController": {&corev1.ReplicationController{
			ObjectMeta: om,
			Spec:       corev1.ReplicationControllerSpec{Template: new(podTemplate())},
		}, 1},
		"Pod":     {&corev1.Pod{ObjectMeta: om, Spec: podTemplate().Spec}, 1},
		"Rollout": {rollout, 4},
	} {
		t.Run(kind, func(t *testing.T) {
			got, err := FromObject(c.obj, schema.GroupVersionKind{Group: "g", Version: "v1", Kind: kind}, nil)
			if err != nil {
				t.Fatal(err)
			}

			want := Workload{
				Ref: Ref{Namespace: "ns", APIVersion: "g/v1", Kind: kind, Name: "x"}, UID: "u", Labels: map[string]string{"a": "b"},
				Replicas: c.replicas, Containers: wantContainers(),
			}

			switch kind {
			case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController":
				want.Available = new(int32(0))
			case "DaemonSet":
				want.Available = new(int32(5))
			case "Rollout":
				want.Available = new(int32(2))
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("FromObject (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFromObject_WithoutTemplate(t *testing.T) {
	custom := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}, "spec": spec}}
	}
	for name, c := range map[string]struct {
		obj        client.Object
		noTemplate bool
	}{
		"a kind without pods":       {&corev1.Service{}, true},
		"a custom kind":             {custom(map[string]any{}), true},
		"a template of other sort":  {custom(map[string]any{"template": map[string]any{"metadata": map[string]any{}}}), true},
		"a template without any":    {custom(map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{}}}}), true},
		"no controller template":    {&corev1.ReplicationController{}, true},
		"a template that is text":   {custom(map[string]any{"template": "x"}), false},
		"containers that are text":  {custom(map[string]any{"template": map[string]any{"spec": map[string]any{"containers": "x"}}}), false},
		"a quantity that is no one": {custom(map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "resources": map[string]any{"requests": map[string]any{"cpu": "many"}}}}}}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := FromObject(c.obj, schema.GroupVersionKind{Kind: "K"}, nil)
			if err == nil || errors.Is(err, ErrNoTemplate) != c.noTemplate {
				t.Errorf("error %v; want one, ErrNoTemplate %t", err, c.noTemplate)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	owned := func(name, apiVersion, kind, owner string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "no-controller"},
				{APIVersion: apiVersion, Kind: kind, Name: owner, Controller: new(true)},
			},
		}}
	}

	bare := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bare"}}
	var owners Owners
	if ref, ok := owners.Of(owned("p", "apps/v1", "ReplicaSet", "unknown")); !ok || ref.Kind != "ReplicaSet" {
		t.Errorf("Of without owners = %v, %t, want the ReplicaSet", ref, ok)
	}

	owners.Add("ReplicaSet", owned("web-1", "apps/v1", "Deployment", "web"))
	owners.Add("ReplicaSet", owned("canary-1", "argoproj.io/v1alpha1", "Rollout", "canary"))
	owners.Add("Job", owned("night-1", "batch/v1", "CronJob", "night"))
	owners.Add("Job", bare)

	for name, c := range map[string]struct {
		pod  metav1.Object
		want string
	}{
		"deployment":       {owned("p", "apps/v1", "ReplicaSet", "web-1"), "ns/Deployment/web"},
		"custom":           {owned("p", "argoproj.io/v1alpha1", "ReplicaSet", "canary-1"), "ns/Rollout/canary"},
		"cron job":         {owned("p", "batch/v1", "Job", "night-1"), "ns/CronJob/night"},
		"lone job":         {owned("p", "batch/v1", "Job", "bare"), "ns/Job/bare"},
		"lone replica set": {owned("p", "apps/v1", "ReplicaSet", "other"), "ns/ReplicaSet/other"},
		"custom of pods":   {owned("p", "apps.kruise.io/v1alpha1", "CloneSet", "c"), "ns/CloneSet/c"},
		"bare pod":         {bare, "ns/Pod/bare"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := owners.Of(c.pod); !ok || got.String() != c.want {
				t.Errorf("%v, %t; want %s", got, ok, c.want)
			}
		})
	}

	if ref, ok := owners.Of(owned("etcd", "v1", "Node", "n1")); ok {
		t.Errorf("Of a static pod = %v, want none", ref)
	}
}

func TestFromObject_Owned(t *testing.T) {
	owned := metav1.ObjectMeta{Name: "x", OwnerReferences: []metav1.OwnerReference{{Kind: "Any", Name: "y", Controller: new(true)}}}
	for kind, c := range map[string]struct {
		obj  client.Object
		want bool
	}{
		"ReplicaSet":  {&appsv1.ReplicaSet{ObjectMeta: owned}, true},
		"Job":         {&batchv1.Job{ObjectMeta: owned}, true},
		"Pod":         {&corev1.Pod{ObjectMeta: owned}, true},
		"StatefulSet": {&appsv1.StatefulSet{ObjectMeta: owned}, false},
	} {
		w, err := FromObject(c.obj, schema.GroupVersionKind{Kind: kind}, nil)
		if err != nil || w.Owned != c.want {
			t.Errorf("FromObject of an owned %s: owned %t, %v, want %t", kind, w.Owned, err, c.want)
		}
	}
}
