// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestRunGroup(t *testing.T) {
	for _, c := range []struct{ kind, name, want string }{
		{"Pod", "etl-load-x8k2p", "etl-load-*"},
		{"Pod", "etl-load-bcdfg", "etl-load-*"},
		{"Pod", "etl-load-8f3a2b1c", "etl-load-*"},
		{"Pod", "dag.task.5f0c9a7e1b2d4c3f9a8b7c6d5e4f3a2b", "dag.task.*"},
		{"Pod", "spark-pi-3e1f8a90b2c4d5e6-exec-12", "spark-pi-*-exec-12"},
		{"Pod", "build-0a1b2c3d-0001-4000-8000-00000000000f", "build-*"},
		{"Pod", "runner-t1xk9z-project-42-concurrent-0-9xk2pq", "runner-t1xk9z-project-42-concurrent-*"},
		{"Pod", "jenkins-job-12-bcdfg-hjklm", "jenkins-job-*"},
		{"Pod", "report-2026-03-18", "report-*"},
		{"Pod", "report-20260318t120000", "report-*"},
		{"Job", "load-1773835200", "load-*"},
		{"Job", "migrate-1a2b3c4", "migrate-*"},
		{"Workflow", "etl-x8k2p", "etl-*"},
		{"TaskRun", "build-x8k2p-fetch", "build-*-fetch"},
		{"Pod", "etl-load-*", "etl-load-*"},

		// Names that a person has chosen.
		{"Pod", "web", "web"},
		{"Pod", "db-0", "db-0"},
		{"Pod", "kafka-10", "kafka-10"},
		{"Pod", "gateway-v2", "gateway-v2"},
		{"Pod", "redis-master", "redis-master"},
		{"Pod", "api-v1beta1", "api-v1beta1"},
		{"Pod", "api-python311", "api-python311"},
		{"Job", "import", "import"},
		{"Pod", "x8k2p", "x8k2p"},

		// Controllers with replicas.
		{"Deployment", "web-x8k2p", "web-x8k2p"},
		{"StatefulSet", "db-20260318", "db-20260318"},
		{"CronJob", "load-x8k2p", "load-x8k2p"},
	} {
		ref := Ref{Namespace: "shop", Kind: c.kind, Name: c.name}
		got := ref.RunGroup()
		if got.Name != c.want || got.Namespace != "shop" || got.Kind != c.kind {
			t.Errorf("RunGroup() of %s %s = %+v, want the name %s", c.kind, c.name, got, c.want)
		}
		if again := got.RunGroup(); again != got {
			t.Errorf("RunGroup() of the group %s = %s, want the same", got.Name, again.Name)
		}
	}
}

func FuzzRunGroup(f *testing.F) {
	f.Add("etl-load-x8k2p")
	f.Add("-")
	f.Add("*--*")
	f.Fuzz(func(t *testing.T, name string) {
		group := Ref{Namespace: "a", Kind: "Pod", Name: name}.RunGroup()
		if group.Namespace != "a" || group.Kind != "Pod" || group.RunGroup() != group {
			t.Errorf("RunGroup() of %q = %+v, want a group of itself in the same namespace", name, group)
		}
	})
}

// TestInventoryGroupsRuns checks that the runs of one template are one workload, and those of other namespaces are not among them.
func TestInventoryGroupsRuns(t *testing.T) {
	pod := func(namespace, name string) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: podTemplate().Spec}
	}
	l, _ := newLister(t, 2, interceptor.Funcs{},
		pod("ci", "build-8f3a2b1c"), pod("ci", "build-0c9d8e7f"), pod("ci", "lint-8f3a2b1c"), pod("ci", "proxy"), pod("other", "build-1a2b3c4d"))

	all, err := l.Inventory(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, w := range all {
		got = append(got, w.String())
		if len(w.Containers) == 0 {
			t.Errorf("%s has no containers, want those of one of its pods", w.Ref)
		}
	}
	slices.Sort(got)

	want := []string{"ci/Pod/build-*", "ci/Pod/lint-*", "ci/Pod/proxy", "other/Pod/build-*"}
	if !slices.Equal(got, want) {
		t.Errorf("Inventory() = %v, want %v", got, want)
	}
}
