// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"crane.io/crane/pkg/cost"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}

	return out
}

func controlledBy(apiVersion, kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "1", Controller: &yes}}
}

// placedPod is a pod with an init container that requests more CPU than the app container.
func placedPod(namespace, name, node string, owner []metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owner},
		Spec: corev1.PodSpec{
			NodeName:       node,
			InitContainers: []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: list("cpu", "2")}}},
			Containers: []corev1.Container{
				{Name: "app", Resources: corev1.ResourceRequirements{Requests: list("cpu", "500m", "memory", "1Gi", "nvidia.com/gpu", "2")}},
				{Name: "side", Resources: corev1.ResourceRequirements{Requests: list("cpu", "250m", "memory", "1Gi")}},
			},
		},
	}
}

func TestCluster(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "a"}},
		Status:     corev1.NodeStatus{Capacity: list("cpu", "8", "memory", "32Gi", "amd.com/gpu", "4"), Allocatable: list("cpu", "7")},
	}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	ended := placedPod("shop", "ended", "n1", nil)
	ended.Status.Phase = corev1.PodSucceeded

	objects := []client.Object{
		node, bare, ended,
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: controlledBy("apps/v1", "Deployment", "web")}},
		placedPod("shop", "web-1-a", "n1", controlledBy("apps/v1", "ReplicaSet", "web-1")),
		placedPod("shop", "web-1-b", "", controlledBy("apps/v1", "ReplicaSet", "web-1")),
		placedPod("bank", "alone", "n2", nil),
		placedPod("bank", "static-n2", "n2", controlledBy("v1", "Node", "n2")),
	}

	lister, _ := newLister(t, 2, interceptor.Funcs{}, objects...)
	got, err := lister.Cluster(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	want := []cost.Node{
		{Name: "n1", Labels: map[string]string{"pool": "a"}, Size: cost.Amounts{CPU: 8000, Memory: 32 << 30, GPU: 4}},
		{Name: "n2"},
	}

	if diff := cmp.Diff(want, got.Nodes); diff != "" {
		t.Errorf("Cluster has other nodes (-want +got):\n%s", diff)
	}

	pods := map[string]Pod{}
	for _, p := range got.Pods {
		pods[p.Name] = p
	}

	web := Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	// The init container determines CPU, the sum of the others the rest.
	asks := cost.Amounts{CPU: 2000, Memory: 2 << 30, GPU: 2}
	if p := pods["web-1-a"]; p.Owner != web || p.Node != "n1" || p.Requests != asks {
		t.Errorf("pod web-1-a = %+v, want one of %v on n1 that requests %+v", p, web, asks)
	}
	if p := pods["static-n2"]; len(pods) != 4 || p.Owner.Kind != "Pod" || p.Owner.Name != "static-n2" {
		t.Errorf("%d pods, static-n2 is %+v, want 4 and one that is its own owner", len(pods), p)
	}

	placed := got.Placement()
	if n := placed.PodsByNode(Ref{Namespace: "shop", APIVersion: "apps/v1beta1", Kind: "Deployment", Name: "web"}); n["n1"] != 1 || len(n) != 1 {
		t.Errorf("PodsByNode of web = %v, want one on n1", n)
	}

	payers := got.CostPods(func(namespace, pod string) (cost.Amounts, bool) {
		return cost.Amounts{CPU: 7}, namespace+"/"+pod == "bank/alone"
	})

	known := 0
	for _, p := range payers {
		if p.Usage != nil {
			known++
			if p.Workload != (cost.Workload{Namespace: "bank", Kind: "Pod", Name: "alone"}) || p.Usage.CPU != 7 {
				t.Errorf("CostPods has %+v, want the usage of pod bank/alone, 7", p)
			}
		}
	}

	if len(payers) != 4 || known != 1 {
		t.Errorf("CostPods has %d pods, %d with usage, want 4 and 1", len(payers), known)
	}
}

// TestPlacement_Runs checks that a single run is found on the nodes of all runs of its template, as its usage is.
func TestPlacement_Runs(t *testing.T) {
	owner := func(name string) Ref { return Ref{Namespace: "ci", APIVersion: "batch/v1", Kind: "Job", Name: name} }
	placed := Cluster{Pods: []Pod{
		{Name: "a", Node: "n1", Owner: owner("etl-20260310")},
		{Name: "b", Node: "n2", Owner: owner("etl-*")},
	}}.Placement()

	for _, name := range []string{"etl-20260310", "etl-20260311", "etl-*"} {
		if diff := cmp.Diff(map[string]int{"n1": 1, "n2": 1}, placed.PodsByNode(owner(name))); diff != "" {
			t.Errorf("PodsByNode of %s differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestCluster_Namespaces(t *testing.T) {
	lister, _ := newLister(t, 0, interceptor.Funcs{}, placedPod("a", "1", "n", nil), placedPod("b", "2", "n", nil), placedPod("c", "3", "n", nil))
	got, err := lister.Cluster(t.Context(), []string{"a", "c"})
	if err != nil || len(got.Pods) != 2 {
		t.Errorf("Cluster of two namespaces = %+v, %v, want 2 pods", got, err)
	}
}

func TestCluster_Errors(t *testing.T) {
	for _, kind := range []string{"NodeList", "PodList", "PartialObjectMetadataList"} {
		boom := errors.New("forbidden")
		lister, _ := newLister(t, 0, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if name := fmt.Sprintf("%T", l); name == "*v1."+kind {
				return boom
			}

			return c.List(ctx, l, opts...)
		}})

		if got, err := lister.Cluster(t.Context(), nil); !errors.Is(err, boom) || len(got.Nodes)+len(got.Pods) != 0 {
			t.Errorf("Cluster where listing %s fails = %+v, %v, want %v", kind, got, err, boom)
		}
	}
}
