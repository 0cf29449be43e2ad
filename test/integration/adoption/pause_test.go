// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// TestPause checks that no workload is changed while the ConfigMap crane-pause pauses Crane, that a condition and a metric report it, and
// that changes follow afterward.
// The test does not run beside others, because the ConfigMap is for all of them.
func TestPause(t *testing.T) {
	f := newFixture(t)
	cm := createPause(t)
	craned := startCraned(t)
	f.Deploy("web", 2)
	f.recommend("web", auto, "200m", "200Mi")
	f.awaitNotAdopted("web", "Paused")
	f.checkUntouched("web")

	if d, err := f.deployment(t.Context(), "web"); err != nil || d.Annotations["analysis.crane.io/resource-recommendation"] != "" {
		t.Errorf("annotations %v, %v, want no recommendation", d.Annotations, err)
	}

	awaitPaused(t, craned, 1)
	resumed := cm.DeepCopy()
	resumed.Data[pause.KeyPaused] = "false"
	if err := admin.Patch(t.Context(), resumed, client.MergeFrom(cm)); err != nil {
		t.Fatal(err)
	}

	awaitPaused(t, craned, 0)
	f.awaitFirstStep("web")
}

// TestPausedPods checks that new pods of an adopted workload are created as their template is while Crane is paused, and with the adopted
// requests before and afterward.
// The test does not run beside others, because the ConfigMap and the webhooks are for all of them.
func TestPausedPods(t *testing.T) {
	f := newFixture(t)
	address := harness.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	craned := startCraned(t, "--webhook-host="+host, "--webhook-port="+port)
	harness.InstallWebhooks(t, control.Config(), admin, address)
	template := f.Deploy("web", 1).Spec.Template.Spec
	f.recommend("web", auto, "900m", "512Mi")
	f.awaitPhase("web", adoption.Resting)

	newPod := func(ctx context.Context) (*corev1.Pod, error) {
		pods, err := f.ListPods(ctx, "web")
		if err != nil || len(pods) == 0 {
			return nil, fmt.Errorf("%d pods: %w", len(pods), err)
		}

		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, GenerateName: "web-", Labels: pods[0].Labels, OwnerReferences: pods[0].OwnerReferences},
			Spec:       *template.DeepCopy(),
		}

		return pod, f.Create(ctx, pod, client.DryRunAll)
	}

	awaitAdopted := func() {
		t.Helper()

		f.Eventually("a new pod has the adopted requests", func(ctx context.Context) error {
			pod, err := newPod(ctx)
			if err == nil && pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "900m" {
				err = fmt.Errorf("requests %v", pod.Spec.Containers[0].Resources.Requests)
			}

			return err
		})
	}

	awaitAdopted()
	cm := createPause(t)
	awaitPaused(t, craned, 1)

	if pod, err := newPod(t.Context()); err != nil || !equality.Semantic.DeepEqual(pod.Spec.Containers[0].Resources, template.Containers[0].Resources) {
		t.Errorf("paused: a new pod has the resources %+v, error %v, want those of the template", pod.Spec.Containers[0].Resources, err)
	}

	harness.Delete(t, admin, cm)
	awaitPaused(t, craned, 0)
	awaitAdopted()
}

// createPause creates the ConfigMap that pauses Crane until the test ends.
func createPause(t *testing.T) *corev1.ConfigMap {
	t.Helper()

	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: pause.ConfigMapName}, Data: map[string]string{pause.KeyPaused: "true", pause.KeyReason: "incident 7"},
	}

	if err := admin.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { harness.Delete(t, admin, cm) })
	return cm
}

// awaitPaused waits until the metric of craned reports that it is paused (1) or not (0).
func awaitPaused(t *testing.T, craned *harness.Craned, want float64) {
	t.Helper()

	harness.Eventually(t.Context(), t, waitTimeout, fmt.Sprintf("crane_paused is %v", want), func(ctx context.Context) error {
		got, err := craned.Metric(ctx, "crane_paused")
		if err == nil && got != want {
			err = fmt.Errorf("it is %v", got)
		}

		return err
	})
}
