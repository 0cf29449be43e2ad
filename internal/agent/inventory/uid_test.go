// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestUIDs checks that a pod with the annotations of a mirror pod takes the UID of no other pod.
func TestUIDs(t *testing.T) {
	plain := func(uid string) corev1.Pod {
		return pod(func(p *corev1.Pod) { p.UID = types.UID(uid) })
	}
	mirror := func(uid, hash string) corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.UID = types.UID(uid)
			p.Spec.NodeName = "n1"
			p.Annotations = map[string]string{annotationHash: hash, annotationMirror: hash}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node", Controller: new(true)}}
		})
	}
	ownerless := mirror("a", "static")
	ownerless.OwnerReferences = nil
	foreign := mirror("a", "static")
	foreign.OwnerReferences[0].Name = "n2"

	for name, c := range map[string]struct {
		pods []corev1.Pod
		want []string
	}{
		"plain":                  {[]corev1.Pod{plain("a"), plain("b")}, []string{"a", "b"}},
		"static":                 {[]corev1.Pod{mirror("a", "static"), plain("b")}, []string{"static", "b"}},
		"of another pod":         {[]corev1.Pod{mirror("a", "b"), plain("b")}, []string{"a", "b"}},
		"of a static pod":        {[]corev1.Pod{mirror("a", "static"), mirror("forged", "static")}, []string{"a", "forged"}},
		"without an owner":       {[]corev1.Pod{ownerless, mirror("b", "static")}, []string{"a", "static"}},
		"of another node":        {[]corev1.Pod{foreign}, []string{"a"}},
		"own UID in annotations": {[]corev1.Pod{mirror("a", "a")}, []string{"a"}},
	} {
		var list []*corev1.Pod
		for i := range c.pods {
			list = append(list, &c.pods[i])
		}

		if got := UIDs(list); !slices.Equal(got, c.want) {
			t.Errorf("%s: UIDs = %q, want %q", name, got, c.want)
		}
	}
}

// TestNew_ForgedMirrorPod checks that a pod of a tenant does not replace the properties of another pod.
func TestNew_ForgedMirrorPod(t *testing.T) {
	forged := pod(func(p *corev1.Pod) {
		p.Namespace = "tenant"
		p.UID = "forged"
		p.Annotations = map[string]string{annotationHash: "uid-1", annotationMirror: "x"}
	})

	for _, list := range [][]corev1.Pod{{pod(nil), forged}, {forged, pod(nil)}} {
		if got, ok := inventory(list...).Find("uid-1"); !ok || got.Namespace != "shop" {
			t.Errorf("Find(uid-1) = %s/%s, %t, want shop/web", got.Namespace, got.Name, ok)
		}
	}
}
