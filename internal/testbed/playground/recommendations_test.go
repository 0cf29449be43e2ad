// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// TestRowsOfKinds checks that the table has the current requests of workloads of every kind.
func TestRowsOfKinds(t *testing.T) {
	pod := `{"spec":{"initContainers":[{"name":"proxy","resources":{"requests":{"cpu":"2"}}}],"containers":[{"name":"app","resources":{"requests":{"cpu":"3","memory":"1Gi"}}}]}}`
	for kind, patch := range map[string]string{
		"Deployment": `{"spec":{"template":` + pod + `}}`,
		"CronJob":    `{"spec":{"jobTemplate":{"spec":{"template":` + pod + `}}}}`,
	} {
		rec := analysisv1alpha1.Recommendation{Spec: analysisv1alpha1.RecommendationSpec{TargetRef: corev1.ObjectReference{Kind: kind, Name: "nightly"}}}
		rec.Status.CurrentInfo = patch
		rec.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - {containerName: app, target: {cpu: 1, memory: 512Mi}}\n  - {containerName: proxy, target: {cpu: 1}}\n"

		got, err := rows([]analysisv1alpha1.Recommendation{rec})
		if err != nil {
			t.Fatal(err)
		}

		if len(got) != 2 || got[0].cpuNow != "3" || got[0].memoryNow != "1Gi" || got[1].cpuNow != "2" {
			t.Errorf("rows of a %s = %+v, want app with 3 cores and 1Gi now, then proxy with 2 cores now", kind, got)
		}
	}
}
