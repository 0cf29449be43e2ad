// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/pause"
)

// TestRead_TenantsDecoys checks that objects in a tenant's namespace with the names and labels of Crane's change nothing in the status, whether
// Crane runs or not.
func TestRead_TenantsDecoys(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	crane := objectsOf("crane-system", now, false)
	decoys := objectsOf("aaa-tenant", now, true)

	for name, objects := range map[string][]client.Object{
		"installed":     crane,
		"not installed": nil,
	} {
		want, err := Read(t.Context(), statusClient(t, objects...), "crane-system", now)
		if err != nil {
			t.Fatal(err)
		}

		got, err := Read(t.Context(), statusClient(t, slices.Concat(decoys, objects)...), "crane-system", now)
		if err != nil {
			t.Fatal(err)
		}

		for i := range got {
			if strings.Contains(got[i].Detail+got[i].Advice, "tenant") {
				t.Errorf("%s: Read with decoys has %+v, want nothing of another namespace", name, got[i])
			}
			if i < len(want) && got[i] != want[i] {
				t.Errorf("%s: Read with decoys has %+v, want %+v as without", name, got[i], want[i])
			}
		}

		if len(got) != len(want) {
			t.Errorf("%s: Read with decoys has %d lines, want %d", name, len(got), len(want))
		}
	}
}

// objectsOf returns the components of Crane in a namespace, with recent leases.
func objectsOf(namespace string, now time.Time, paused bool) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{ComponentLabel: name}}
	}

	var out []client.Object
	for _, name := range []string{"craned", "metric-adapter", "crane-scheduler"} {
		out = append(out, &appsv1.Deployment{ObjectMeta: meta(name), Status: appsv1.DeploymentStatus{ReadyReplicas: 1, UpdatedReplicas: 1}})
	}
	out = append(out, &appsv1.DaemonSet{ObjectMeta: meta("crane-agent"), Status: appsv1.DaemonSetStatus{NumberReady: 3, UpdatedNumberScheduled: 3, DesiredNumberScheduled: 3}})

	holder := namespace + "_1"
	renewed := metav1.NewMicroTime(now.Add(-10 * time.Second))
	for _, name := range []string{CranedLease, "crane-scheduler"} {
		out = append(out, &coordinationv1.Lease{ObjectMeta: meta(name), Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed}})
	}

	if paused {
		out = append(out, &corev1.ConfigMap{ObjectMeta: meta(pause.ConfigMapName), Data: map[string]string{pause.KeyPaused: "true", pause.KeyReason: "by a tenant"}})
	}

	return out
}
