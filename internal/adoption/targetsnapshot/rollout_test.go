// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRolloutInProgress: a roll-out is in progress while its controller still replaces pods by itself.
func TestRolloutInProgress(t *testing.T) {
	set := func(strategy appsv1.StatefulSetUpdateStrategy, updated int32) client.Object {
		return &appsv1.StatefulSet{
			Spec:   appsv1.StatefulSetSpec{Replicas: new(int32(4)), UpdateStrategy: strategy},
			Status: appsv1.StatefulSetStatus{CurrentRevision: "a", UpdateRevision: "b", UpdatedReplicas: updated},
		}
	}
	partition := func(n int32) appsv1.StatefulSetUpdateStrategy {
		return appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &n},
		}
	}
	daemons := func(strategy appsv1.DaemonSetUpdateStrategyType) client.Object {
		return &appsv1.DaemonSet{
			Spec:   appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: strategy}},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 4, UpdatedNumberScheduled: 1},
		}
	}

	for name, c := range map[string]struct {
		object client.Object
		want   bool
	}{
		"StatefulSet without a strategy":     {set(appsv1.StatefulSetUpdateStrategy{}, 3), true},
		"StatefulSet, OnDelete":              {set(appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}, 1), false},
		"StatefulSet, above its partition":   {set(partition(2), 1), true},
		"StatefulSet, up to its partition":   {set(partition(2), 2), false},
		"StatefulSet, partition above all":   {set(partition(9), 0), false},
		"StatefulSet, new generation unseen": {&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 1}}, true},
		"DaemonSet":                          {daemons(appsv1.RollingUpdateDaemonSetStrategyType), true},
		"DaemonSet, OnDelete":                {daemons(appsv1.OnDeleteDaemonSetStrategyType), false},
	} {
		s := &TargetSnapshot{Object: c.object}
		s.readKindFields()

		if s.rolloutInProgress != c.want {
			t.Errorf("%s: rolloutInProgress = %t, want %t", name, s.rolloutInProgress, c.want)
		}
	}
}
