// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package enqueue

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestAllAndList(t *testing.T) {
	pod := func(namespace, name string) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pod("a", "x"), pod("b", "y")).Build()

	got := All[corev1.PodList](reader)(t.Context(), &corev1.Node{})
	if len(got) != 2 || got[0].String() != "a/x" || got[1].String() != "b/y" {
		t.Errorf("All = %v, want a/x and b/y", got)
	}
	if got := List(t.Context(), reader, &corev1.PodList{}, client.InNamespace("b")); len(got) != 1 || got[0].String() != "b/y" {
		t.Errorf("List in namespace b = %v, want b/y", got)
	}
	if got := List(t.Context(), stopping{reader}, &corev1.PodList{}); got != nil {
		t.Errorf("List of a stopping cache = %v, want none", got)
	}
}

// stopping is a cache that has stopped.
type stopping struct{ client.Reader }

func (stopping) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("stopping")
}
