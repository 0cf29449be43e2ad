// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestPredecessor checks that a dry run names what gocrane's agent left on the Node, and that an agent that acts removes it.
func TestPredecessor(t *testing.T) {
	c := newClient(t)
	node := newNode("predecessor")
	node.Spec.Taints = []corev1.Taint{{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule}}
	harness.Create(t, c, node)
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("6")}
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: ensurancev1alpha1.ConditionInterferenceIdentified, Status: corev1.ConditionTrue},
	}

	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}

	dry := startAgent(t, "predecessor")
	dry.awaitLog(t, "gocrane's agent left", "gocrane.io/cpu")
	dry.Stop(t)
	startAgent(t, "predecessor", "--enforce=cpu-throttle")

	eventually(t, "the Node is clean", func(ctx context.Context) error {
		now := &corev1.Node{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(node), now); err != nil {
			return err
		}

		_, has := now.Status.Allocatable[ensurancev1alpha1.ResourceReclaimedCPU]
		for _, taint := range now.Spec.Taints {
			has = has || taint.Key == ensurancev1alpha1.TaintKey
		}

		if has || len(now.Status.Conditions) != 1 || len(now.Status.Capacity) != 1 {
			return fmt.Errorf("%+v, %+v, %+v", now.Spec.Taints, now.Status.Conditions, now.Status.Capacity)
		}

		return nil
	})
}
