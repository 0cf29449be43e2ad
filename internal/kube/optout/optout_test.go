// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package optout

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newPod(kind, owner string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: labels}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}
	}

	return p
}

// TestExcludes checks that the label is honored on a pod, its controller, the maker of the controller, and its namespace, and on no others.
func TestExcludes(t *testing.T) {
	hash := map[string]string{"pod-template-hash": "5d4f"}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		entry Workload
		want  bool
	}{
		"pod":                          {newPod("", "", map[string]string{"crane.io/opt-out": "true"}), Workload{}, true},
		"pod with another value":       {newPod("", "", map[string]string{"crane.io/opt-out": "false"}), Workload{}, false},
		"namespace":                    {newPod("", "", nil), Workload{Kind: KindNamespace, Namespace: "shop"}, true},
		"another namespace":            {newPod("", "", nil), Workload{Kind: KindNamespace, Namespace: "bank"}, false},
		"StatefulSet":                  {newPod("StatefulSet", "db", nil), Workload{"StatefulSet", "shop", "db"}, true},
		"StatefulSet elsewhere":        {newPod("StatefulSet", "db", nil), Workload{"StatefulSet", "bank", "db"}, false},
		"another kind":                 {newPod("StatefulSet", "db", nil), Workload{"Deployment", "shop", "db"}, false},
		"Deployment":                   {newPod("ReplicaSet", "web-5d4f", hash), Workload{"Deployment", "shop", "web"}, true},
		"Deployment with a like name":  {newPod("ReplicaSet", "web-api-5d4f", hash), Workload{"Deployment", "shop", "web"}, false},
		"ReplicaSet of its own":        {newPod("ReplicaSet", "web-5d4f", nil), Workload{"Deployment", "shop", "web"}, false},
		"CronJob":                      {newPod("Job", "report-29384756", nil), Workload{"CronJob", "shop", "report"}, true},
		"Job that is not of a CronJob": {newPod("Job", "report-7", nil), Workload{"CronJob", "shop", "report"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Set{}
			s.Add(test.entry)

			if got := s.Excludes(test.pod); got != test.want {
				t.Errorf("Excludes = %t, want %t", got, test.want)
			}
		})
	}
}

// TestEncode checks that a list survives encoding, and that a namespace with too many entries is excluded as a whole and no other is lost.
func TestEncode(t *testing.T) {
	s := Set{}
	s.AddNamespace("bank")
	s.Add(Workload{"Deployment", "shop", "web"})
	got := Set{}
	got.Decode("what is this\n\n" + s.Encode())

	if !maps.Equal(got, s) {
		t.Errorf("%v, want %v", got, s)
	}

	for i := range 40_000 {
		s.Add(Workload{"Deployment", "hostile", fmt.Sprintf("workload-with-a-long-name-%d", i)})
	}

	text := s.Encode()
	if len(text) > maxBytes {
		t.Errorf("Encode has %d bytes, want at most %d", len(text), maxBytes)
	}

	got = Set{}
	got.Decode(text)

	if !got.has(Workload{"Deployment", "shop", "web"}) || !got.has(Workload{Kind: KindNamespace, Namespace: "hostile"}) || len(got) != 3 {
		t.Errorf("Decode has %d entries, want 3, one of them namespace hostile", len(got))
	}
}
