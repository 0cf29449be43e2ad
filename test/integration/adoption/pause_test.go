// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/test/integration/harness"
)

// TestPause checks that no workload is changed while the ConfigMap crane-pause pauses Crane, that a condition and a metric report it, and
// that changes follow afterwards.
// The test does not run beside others, because the ConfigMap is for all of them.
func TestPause(t *testing.T) {
	f := newFixture(t)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: pause.ConfigMapName}, Data: map[string]string{pause.KeyPaused: "true", pause.KeyReason: "incident 7"},
	}
	if err := admin.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { harness.Delete(t, admin, cm) })
	craned := startCraned(t)
	f.Deploy("web", 2)
	f.recommend("web", auto, "200m", "200Mi")
	f.awaitNotAdopted("web", "Paused")
	f.checkUntouched("web")
	if d, err := f.deployment(t.Context(), "web"); err != nil || d.Annotations["analysis.crane.io/resource-recommendation"] != "" {
		t.Errorf("annotations %v, %v", d.Annotations, err)
	}
	awaitPaused := func(want float64) {
		harness.Eventually(t.Context(), t, waitTimeout, fmt.Sprintf("crane_paused is %v", want), func(ctx context.Context) error {
			got, err := craned.Metric(ctx, "crane_paused")
			if err == nil && got != want {
				err = fmt.Errorf("it is %v", got)
			}
			return err
		})
	}
	awaitPaused(1)
	resumed := cm.DeepCopy()
	resumed.Data[pause.KeyPaused] = "false"
	if err := admin.Patch(t.Context(), resumed, client.MergeFrom(cm)); err != nil {
		t.Fatal(err)
	}
	awaitPaused(0)
	f.awaitFirstStep("web")
}
