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

// recommendersByKind are the recommenders and the kind that each looks at here.
func recommendersByKind() map[string]string {
	return map[string]string{
		"IdleNode": "Node", "Volume": "PersistentVolume", "Service": "Service",
		"Unused": "Deployment", "Throttle": "Deployment", "Packing": "Deployment", "GPU": "Deployment",
	}
}

// emptyPrometheus is a server that has nothing.
func emptyPrometheus(t *testing.T) *promserver.Server {
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

// TestNothingKnownNothingConcluded: with a source that answers and holds nothing, nobody is said to be idle. What the API
// server alone knows is said all the same.
func TestNothingKnownNothingConcluded(t *testing.T) {
	c := newClient(t)
	startControllers(t, emptyPrometheus(t).URL())
	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			r := rule(t, c, recommender, kind)
			ready(t, c, r, "RoundCompleted")
			for name, rec := range recommendations(t.Context(), t, c, r.Name) {
				action := rec.Status.Action
				if (action == analysisv1alpha1.ActionDelete || action == analysisv1alpha1.ActionPatch) && name != "pv-released" {
					t.Errorf("%s: %s: %s", name, action, rec.Status.Description)
				}
			}
		})
	}
}

// TestSourceThatFails: nothing is written, and the rule says why.
func TestSourceThatFails(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>sign in</html>"))
	}))
	t.Cleanup(page.Close)
	c := newClient(t)
	startControllers(t, page.URL)
	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			r := rule(t, c, recommender, kind)
			if cond := ready(t, c, r, "DataSourceFailed"); cond.Status != metav1.ConditionFalse || !strings.Contains(cond.Message, "recommender "+recommender) {
				t.Errorf("%+v", cond)
			}
			if got := recommendations(t.Context(), t, c, r.Name); len(got) > 0 {
				t.Errorf("recommendations without data: %v", got)
			}
		})
	}
}

// TestDataThatGoMissing: what was recommended stays, and it is said that it is old.
func TestDataThatGoMissing(t *testing.T) {
	c := newClient(t)
	stop := startControllers(t, server.URL())
	r := rule(t, c, "IdleNode", "Node")
	ready(t, c, r, "RoundCompleted")
	before := recommendations(t.Context(), t, c, r.Name)["empty"]
	if before.Status.Action != analysisv1alpha1.ActionDelete {
		t.Fatalf("%+v", before.Status)
	}
	stop()

	startControllers(t, emptyPrometheus(t).URL())
	reconcileAgain(t, c, r)
	after := recommendations(t.Context(), t, c, r.Name)["empty"]
	if after.UID != before.UID || after.Status.Action != analysisv1alpha1.ActionDelete || !strings.Contains(after.Status.Description, "The last recommendation is kept") {
		t.Errorf("%+v", after.Status)
	}
	if cond := meta.FindStatusCondition(after.Status.Conditions, analysisv1alpha1.ConditionFailed); cond == nil || cond.Status != metav1.ConditionTrue {
		t.Errorf("Failed is %+v", cond)
	}
}

// reconcileAgain asks for one more round.
func reconcileAgain(t *testing.T, c client.Client, r *analysisv1alpha1.RecommendationRule) {
	t.Helper()
	before := r.DeepCopy()
	r.Spec.RunInterval = "24h"
	if before.Spec.RunInterval != "" {
		r.Spec.RunInterval = ""
	}
	if err := c.Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	ready(t, c, r, "RoundCompleted")
}

// TestUsedAgain: what is no longer true goes away with the next round.
func TestUsedAgain(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())
	r := rule(t, c, "Service", "Service")
	ready(t, c, r, "RoundCompleted")
	if rec := recommendations(t.Context(), t, c, r.Name)["lb-orphan"]; rec.Status.Action != analysisv1alpha1.ActionDelete {
		t.Fatalf("%+v", rec.Status)
	}
	m := &objectCreator{ctx: t.Context(), c: c}
	back := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "back", Labels: map[string]string{"app": "nobody"}},
		Spec:       corev1.PodSpec{NodeName: "busy", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	m.pod(back)
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), back, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	})
	reconcileAgain(t, c, r)
	harness.Eventually(t.Context(), t, bound, "the recommendation gone", func(ctx context.Context) error {
		if _, there := recommendations(ctx, t, c, r.Name)["lb-orphan"]; there {
			return errors.New("it is still there")
		}
		return nil
	})
}

// TestSettingsThatAreWrong: the rule names recommender, key and what is allowed.
func TestSettingsThatAreWrong(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())
	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			r := rule(t, c, recommender, kind, "no-such-key", "1")
			if cond := ready(t, c, r, "InvalidRecommender"); !strings.Contains(cond.Message, "no-such-key") {
				t.Errorf("%+v", cond)
			}
		})
	}
}

// TestKindsThatAreNobodys: a recommender leaves kinds alone that are not its, and nodes are for rules of all namespaces.
func TestKindsThatAreNobodys(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())
	for recommender, kind := range recommendersByKind() {
		t.Run(recommender, func(t *testing.T) {
			other := "Service"
			if kind == "Service" {
				other = "Deployment"
			}
			r := rule(t, c, recommender, other)
			ready(t, c, r, "RoundCompleted")
			if got := recommendations(t.Context(), t, c, r.Name); len(got) > 0 {
				t.Errorf("%v", got)
			}
		})
	}
	t.Run("nodes of a namespace", func(t *testing.T) {
		r := rule(t, c, "IdleNode", "Node")
		ready(t, c, r, "RoundCompleted")
		before := r.DeepCopy()
		r.Spec.NamespaceSelector = analysisv1alpha1.NamespaceSelector{MatchNames: []string{"shop"}}
		if err := c.Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		ready(t, c, r, "RoundCompleted")
		harness.Eventually(t.Context(), t, bound, "no recommendation for nodes", func(ctx context.Context) error {
			if got := recommendations(ctx, t, c, r.Name); len(got) > 0 {
				return errors.New("there are some")
			}
			return nil
		})
	})
}

// TestTargetGone: a recommendation goes with its target by the next round.
func TestTargetGone(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())
	m := &objectCreator{ctx: t.Context(), c: c}
	m.node("doomed")
	if m.err != nil {
		t.Fatal(m.err)
	}
	doomed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), doomed); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	r := rule(t, c, "IdleNode", "Node")
	ready(t, c, r, "RoundCompleted")
	if cond := meta.FindStatusCondition(recommendations(t.Context(), t, c, r.Name)["doomed"].Status.Conditions, "Ready"); cond == nil || cond.Reason != noData {
		t.Errorf("Ready is %+v", cond)
	}
	if err := c.Delete(t.Context(), doomed); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	reconcileAgain(t, c, r)
	harness.Eventually(t.Context(), t, bound, "the recommendation gone", func(ctx context.Context) error {
		if _, there := recommendations(ctx, t, c, r.Name)["doomed"]; there {
			return errors.New("it is still there")
		}
		return nil
	})
}
