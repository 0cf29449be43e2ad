// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// TestAutoscalerOfTarget checks that the EffectiveHorizontalPodAutoscaler of a target is found by each reference that its controller
// accepts, so that no second one is proposed.
func TestAutoscalerOfTarget(t *testing.T) {
	for apiVersion, want := range map[string]bool{"apps/v1": true, "": true, "apps/v1beta2": true, "example.com/v1": false, "v1": false} {
		f := newFixture(t, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"},
			Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: "Deployment", Name: "web"},
			},
		})

		target := workload.Workload{Ref: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}
		all, err := f.newRunData(f.clock.Now(), nil).effectiveHPAs(t.Context(), []workload.Workload{target})
		if err != nil {
			t.Fatal(err)
		}

		if got := all[identityOf(target.Ref, "")]; (got.Name == "mine") != want {
			t.Errorf("apiVersion %q: found %q, want found %v", apiVersion, got.Name, want)
		}
	}
}
