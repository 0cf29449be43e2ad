// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package sizesources

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDesiredReplicasBeforeTheFirstSync: an autoscaler without a status does not appear to set 0 replicas.
func TestDesiredReplicasBeforeTheFirstSync(t *testing.T) {
	now := metav1.Now()
	for want, status := range map[string]autoscalingv2.HorizontalPodAutoscalerStatus{
		"": {}, "0": {LastScaleTime: &now}, "4": {DesiredReplicas: 4},
	} {
		if got := desiredReplicas(&autoscalingv2.HorizontalPodAutoscaler{Status: status}); got != want {
			t.Errorf("%+v: %q, want %q", status, got, want)
		}
	}
}
