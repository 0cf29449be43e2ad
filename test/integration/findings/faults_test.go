// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package findings_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// recommendersByKind returns the kind that each recommender evaluates in the fixture.
func recommendersByKind() map[string]string {
	return map[string]string{
		"IdleNode": "Node", "Volume": "PersistentVolume", "Service": "Service",
		"Unused": "Deployment", "Throttle": "Deployment", "Packing": "Deployment", "GPU": "Deployment",
	}
}

// startEmptyPrometheus starts a Prometheus server without series.
func startEmptyPrometheus(t *testing.T) *promserver.Server {
	t.Helper()

	s, err := promserver.Open(promserver.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	return s
}

// TestEmptySource checks that no object is reported idle if the data source has no samples. Findings that use only
// the API server are reported.
func TestEmptySource(t *testing.T) {
	c := newClient(t)
	startControllers(t, startEmptyPrometheus(t).URL())

	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			r := createRule(t, c, recommender, kind)
			awaitReady(t, c, r, "RoundCompleted")

			for name, rec := range recommendations(t.Context(), t, c, r.Name) {
				action := rec.Status.Action
				if (action == analysisv1alpha1.ActionDelete || action == analysisv1alpha1.ActionPatch) && name != "pv-released" {
					t.Errorf("%s has action %s, want none without data: %s", name, action, rec.Status.Description)
				}
			}
		})
	}
}

// TestFailingSource checks that no Recommendation is written and the rule reports the failure.
func TestFailingSource(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>sign in</html>"))
	}))
	t.Cleanup(page.Close)
	c := newClient(t)
	startControllers(t, page.URL)

	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			r := createRule(t, c, recommender, kind)
			if cond := awaitReady(t, c, r, "DataSourceFailed"); cond.Status != metav1.ConditionFalse || !strings.Contains(cond.Message, "recommender "+recommender) {
				t.Errorf("condition Ready is %+v, want False with recommender %s", cond, recommender)
			}
			if got := recommendations(t.Context(), t, c, r.Name); len(got) > 0 {
				t.Errorf("recommendations without data: %v, want none", got)
			}
		})
	}
}

// TestLostData checks that a Recommendation is kept and reported as outdated when its data is lost.
func TestLostData(t *testing.T) {
	c := newClient(t)
	stop := startControllers(t, server.URL())
	r := createRule(t, c, "IdleNode", "Node")
	awaitReady(t, c, r, "RoundCompleted")

	before := recommendations(t.Context(), t, c, r.Name)["empty"]
	if before.Status.Action != analysisv1alpha1.ActionDelete {
		t.Fatalf("status %+v, want action Delete", before.Status)
	}

	stop()

	startControllers(t, startEmptyPrometheus(t).URL())
	rerun(t, c, r)

	after := recommendations(t.Context(), t, c, r.Name)["empty"]
	if after.UID != before.UID || after.Status.Action != analysisv1alpha1.ActionDelete || !strings.Contains(after.Status.Description, "The last recommendation is kept") {
		t.Errorf("status %+v, want the last recommendation kept", after.Status)
	}
	if cond := meta.FindStatusCondition(after.Status.Conditions, analysisv1alpha1.ConditionFailed); cond == nil || cond.Status != metav1.ConditionTrue {
		t.Errorf("condition Failed: %+v, want True", cond)
	}
}

// rerun changes the rule so that it runs again.
func rerun(t *testing.T, c client.Client, r *analysisv1alpha1.RecommendationRule) {
	t.Helper()

	before := r.DeepCopy()
	r.Spec.RunInterval = "24h"
	if before.Spec.RunInterval != "" {
		r.Spec.RunInterval = ""
	}

	if err := c.Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}

	awaitReady(t, c, r, "RoundCompleted")
}

// TestTargetInUseAgain checks that a Recommendation is deleted when its finding no longer applies.
func TestTargetInUseAgain(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())
	r := createRule(t, c, "Service", "Service")
	awaitReady(t, c, r, "RoundCompleted")

	if rec := recommendations(t.Context(), t, c, r.Name)["lb-orphan"]; rec.Status.Action != analysisv1alpha1.ActionDelete {
		t.Fatalf("status %+v, want action Delete", rec.Status)
	}

	m := &objectCreator{ctx: t.Context(), c: c}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "back", Labels: map[string]string{"app": "nobody"}},
		Spec:       corev1.PodSpec{NodeName: "busy", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	m.pod(pod)

	if m.err != nil {
		t.Fatal(m.err)
	}

	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	})

	rerun(t, c, r)
	harness.Eventually(t.Context(), t, waitTimeout, "the recommendation is deleted", func(ctx context.Context) error {
		if _, exists := recommendations(ctx, t, c, r.Name)["lb-orphan"]; exists {
			return errors.New("it still exists")
		}

		return nil
	})
}

// TestInvalidSettings checks that the condition of the rule names the unknown setting.
func TestInvalidSettings(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())

	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			r := createRule(t, c, recommender, kind, "no-such-key", "1")
			if cond := awaitReady(t, c, r, "InvalidRecommender"); !strings.Contains(cond.Message, "no-such-key") {
				t.Errorf("condition Ready is %+v, want the unknown key in its message", cond)
			}
		})
	}
}

// TestUnsupportedKinds checks that recommenders ignore kinds that they do not support, and that only rules of all
// namespaces cover nodes.
func TestUnsupportedKinds(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())

	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			other := "Service"
			if kind == "Service" {
				other = "Deployment"
			}

			r := createRule(t, c, recommender, other)
			awaitReady(t, c, r, "RoundCompleted")

			if got := recommendations(t.Context(), t, c, r.Name); len(got) > 0 {
				t.Errorf("recommendations %v, want none of another kind", got)
			}
		})
	}

	t.Run("rule of a namespace for nodes", func(t *testing.T) {
		r := createRule(t, c, "IdleNode", "Node")
		awaitReady(t, c, r, "RoundCompleted")

		before := r.DeepCopy()
		r.Spec.NamespaceSelector = analysisv1alpha1.NamespaceSelector{MatchNames: []string{"shop"}}
		if err := c.Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}

		awaitReady(t, c, r, "NoTargets") // Nodes have no namespace.
		harness.Eventually(t.Context(), t, waitTimeout, "no recommendation for nodes", func(ctx context.Context) error {
			if got := recommendations(ctx, t, c, r.Name); len(got) > 0 {
				return errors.New("recommendations exist")
			}

			return nil
		})
	})
}

// TestDeletedTarget checks that the next run deletes the Recommendation of a deleted target.
func TestDeletedTarget(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())
	m := &objectCreator{ctx: t.Context(), c: c}
	m.node("doomed")

	if m.err != nil {
		t.Fatal(m.err)
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), node); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})

	r := createRule(t, c, "IdleNode", "Node")
	awaitReady(t, c, r, "RoundCompleted")

	if cond := meta.FindStatusCondition(recommendations(t.Context(), t, c, r.Name)["doomed"].Status.Conditions, "Ready"); cond == nil || cond.Reason != noData {
		t.Errorf("condition Ready: %+v, want its reason to be missing data", cond)
	}
	if err := c.Delete(t.Context(), node); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}

	rerun(t, c, r)
	harness.Eventually(t.Context(), t, waitTimeout, "the recommendation is deleted", func(ctx context.Context) error {
		if _, exists := recommendations(ctx, t, c, r.Name)["doomed"]; exists {
			return errors.New("it still exists")
		}

		return nil
	})
}
