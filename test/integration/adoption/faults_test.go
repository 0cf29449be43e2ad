// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// TestEverySecondWriteRefused: with 429 and conflicts on every second write, each pod is resized once a step, each step is told
// once, and all is given back when nobody wants it any more.
func TestEverySecondWriteRefused(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 4)
	deploy(t, ns, "scaled", 1)
	rec := recommend(t, ns, "web", auto, "700m", "512Mi")
	replicas := &analysisv1alpha1.Recommendation{}
	replicas.Namespace, replicas.Name = ns, "scaled"
	replicas.Spec = analysisv1alpha1.RecommendationSpec{
		TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: ns, Name: "scaled"},
		Type:      analysisv1alpha1.AnalysisTypeReplicas, AdoptionType: auto,
	}
	if err := admin.Create(t.Context(), replicas); err != nil {
		t.Fatal(err)
	}
	set(t, replicas, "replicasRecommendation:\n  replicas: 3\n")
	api := harness.ServeUnfriendly(t, control)
	startCraned(t, "--kubeconfig="+api.Kubeconfig(t, "craned", controlplane.ServiceAccount("crane-system", "craned")), "--adoption-settle=1m")
	pods := podsUntil(t, ns, "web", "lowered", sized("700m", "512Mi"))
	podsUntil(t, ns, "scaled", "three", func(pods []corev1.Pod) error { return ready(pods, 3) })
	phase(t, ns, "web", adoption.Resting)
	onceEach(t, pods, 2)
	if s := state(t, ns, "web"); s.Steps != 1 || s.Original.String() != "app: cpu 1, memory 512Mi" {
		t.Errorf("state %+v", s)
	}
	told(t, ns, "web", "AdoptionStep")
	if n, err := events(t.Context(), ns, "web", "AdoptionStep"); err != nil || n != 1 {
		t.Errorf("%d events of a step, %v", n, err)
	}
	notWanted(t, rec)
	notWanted(t, replicas)
	pods = podsUntil(t, ns, "web", "as they were", sized("1", "512Mi"))
	podsUntil(t, ns, "scaled", "one again", func(pods []corev1.Pod) error { return ready(pods, 1) })
	forgotten(t, ns)
	onceEach(t, pods, 3)
	api.Check(t)
}

// onceEach wants every pod to have been changed as often as was needed, and not more.
func onceEach(t *testing.T, pods []corev1.Pod, generation int64) {
	t.Helper()
	for _, p := range pods {
		if p.Generation != generation {
			t.Errorf("pod %s has generation %d, want %d", p.Name, p.Generation, generation)
		}
	}
}

// notWanted ends adoption of a Recommendation.
func notWanted(t *testing.T, rec *analysisv1alpha1.Recommendation) {
	t.Helper()
	if err := admin.Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"adoptionType":"Status"}}`))); err != nil {
		t.Fatal(err)
	}
}

// TestAPIServerRestarts: an API server that is gone in the middle of a step leaves nothing half done, and nothing done twice.
func TestAPIServerRestarts(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 6)
	recommend(t, ns, "web", auto, "700m", "512Mi")
	// Pods are not ready for as long as their nodes could not tell: that is not what the step did.
	startCraned(t, "--adoption-pods-at-once=0.1", "--adoption-settle=5m", "--adoption-ready-grace=30m")
	podsUntil(t, ns, "web", "partly lowered", func(pods []corev1.Pod) error {
		if sized("1", "512Mi")(pods) == nil {
			return errors.New("none is")
		}
		return nil
	})
	before := state(t, ns, "web")
	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := control.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	onceEach(t, podsUntil(t, ns, "web", "lowered", sized("700m", "512Mi")), 2)
	phase(t, ns, "web", adoption.Resting)
	if s := state(t, ns, "web"); s.Steps != 1 || !s.Original.Equal(before.Original) || !s.StepAt.Equal(before.StepAt) {
		t.Errorf("state %+v, it was %+v", s, before)
	}
	podsUntil(t, ns, "web", "ready again", func(pods []corev1.Pod) error { return ready(pods, 6) })
}

// TestWindow: outside of maintenance windows nothing is lowered, and what is short is raised; inside of one it is lowered.
func TestWindow(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "down", 1)
	deploy(t, ns, "up", 1)
	recommend(t, ns, "down", auto, "700m", "512Mi")
	recommend(t, ns, "up", auto, "2", "512Mi")
	first := startCraned(t, "--adoption-window=0 0 29 2 *;1 0 29 2 *")
	podsUntil(t, ns, "up", "raised", sized("2", "512Mi"))
	message(t, ns, "down", "no maintenance window is open; the next opens at ")
	untouched(t, ns, "down")
	first.Stop(t)
	// The two hold the whole day, in any time zone.
	startCraned(t, "--adoption-window=0 0 * * *;0 13 * * *", "--adoption-window=0 12 * * *;0 1 * * *", "--adoption-time-zone=Asia/Tokyo")
	podsUntil(t, ns, "down", "lowered", sized("700m", "512Mi"))
}

// TestStateGoesWithItsTarget: a workload that is deleted and made anew in the middle of a step is a new one.
func TestStateGoesWithItsTarget(t *testing.T) {
	ns := namespaceFor(t)
	d := deploy(t, ns, "web", 4)
	recommend(t, ns, "web", auto, "100m", "512Mi")
	startCraned(t)
	eventually(t, "a step is under way", func(ctx context.Context) error {
		s, err := stateOf(ctx, ns, "web")
		if err == nil && s.Steps == 0 {
			err = errors.New("none is")
		}
		return err
	})
	if err := admin.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its pods are gone", func(ctx context.Context) error {
		pods, err := podsOf(ctx, ns, "web")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d are there", len(pods))
		}
		return err
	})
	deploy(t, ns, "web", 1)
	eventually(t, "it is adopted from the beginning", func(ctx context.Context) error {
		s, err := stateOf(ctx, ns, "web")
		if err == nil && s.Steps == 0 {
			err = errors.New("not yet")
		}
		if err == nil && s.Original.String() != "app: cpu 1, memory 512Mi" {
			t.Errorf("there was %s before", s.Original)
		}
		return err
	})
}
