// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// aged is a Deployment that was created that long before the fixture's clock.
func aged(f *fixture, name string, age time.Duration) *appsv1.Deployment {
	d := deployment(name)
	d.CreationTimestamp = metav1.NewTime(f.clock.Now().Add(-age))
	return d
}

func coolRule(interval string) *analysisv1alpha1.RecommendationRule {
	r := testRule(interval)
	r.Spec.Recommenders[0].Config = map[string]string{keyCooldown: "3m"}
	return r
}

// TestYoungTargets: targets below the cooldown are counted separately, and are evaluated as soon as they are old enough, for
// the same run.
func TestYoungTargets(t *testing.T) {
	for _, interval := range []string{"1h", ""} {
		t.Run("interval "+interval, func(t *testing.T) {
			f := newFixture(t, coolRule(interval))
			for _, d := range []*appsv1.Deployment{aged(f, "web", time.Hour), aged(f, "new", time.Minute), aged(f, "newer", 0)} {
				if err := f.Client.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}

			if r := f.reconcile(); r.RequeueAfter != 3*time.Minute {
				t.Errorf("Reconcile comes back in %s, want 3m", r.RequeueAfter)
			}

			reason, message := f.ready()
			if reason != reasonTargetsYoung || !strings.HasPrefix(message, "1 target was evaluated. 2 are younger than creation-cooldown (3m0s)") {
				t.Errorf("condition Ready is %s: %s, want %s with 1 evaluated and 2 young targets", reason, message, reasonTargetsYoung)
			}

			last := f.clock.Now()

			f.clock.SetTime(last.Add(3 * time.Minute))
			if err := f.Client.Create(t.Context(), aged(f, "later", time.Minute)); err != nil {
				t.Fatal(err)
			}

			want := 57 * time.Minute
			if interval == "" {
				want = 0
			}
			if r := f.reconcile(); r.RequeueAfter != want {
				t.Errorf("the next run in %s, want %s", r.RequeueAfter, want)
			}
			if reason, message := f.ready(); reason != reasonRoundCompleted || !strings.HasPrefix(message, "3 targets") {
				t.Errorf("condition Ready is %s: %s, want %s of 3 targets", reason, message, reasonRoundCompleted)
			}

			all := f.all()
			if len(all) != 3 {
				t.Errorf("%d recommendations, want those of web, new and newer", len(all))
			}

			for name, r := range all {
				if got := r.Annotations[analysisv1alpha1.AnnotationRunNumber]; got != "1" {
					t.Errorf("%s has run number %s, want 1", name, got)
				}
			}

			asked := len(f.source.asked)
			if r := f.reconcile(); r.RequeueAfter != want || len(f.source.asked) != asked {
				t.Errorf("next run in %s after %d more queries, want %s without one", r.RequeueAfter, len(f.source.asked)-asked, want)
			}
		})
	}
}

// TestYoungTargetsOutliveAnOutage: where the targets that were too young cannot be evaluated, a whole run follows.
func TestYoungTargetsOutliveAnOutage(t *testing.T) {
	f := newFixture(t, coolRule(""))
	if err := f.Client.Create(t.Context(), aged(f, "web", time.Minute)); err != nil {
		t.Fatal(err)
	}

	f.reconcile()
	f.clock.SetTime(f.clock.Now().Add(2 * time.Minute))

	f.source.fail = func(context.Context) error { return errors.New("down") }
	if r := f.reconcile(); r.RequeueAfter != firstRetry {
		t.Errorf("Reconcile after a failure comes back in %s, want %s", r.RequeueAfter, firstRetry)
	}

	f.source.fail = nil
	f.reconcile()

	if reason, message := f.ready(); reason != reasonRoundCompleted || len(f.all()) != 1 {
		t.Errorf("condition Ready is %s: %s, with %d recommendations, want %s with 1", reason, message, len(f.all()), reasonRoundCompleted)
	}
}

// TestRefusedTargets checks that targets that the configuration does not accept are not reported as evaluated.
func TestRefusedTargets(t *testing.T) {
	f := newFixture(t, testRule("1h"), deployment("web"))
	settings, err := BuiltinRegistry().ParseSettings([]byte(`
apiVersion: analysis.crane.io/v1alpha1
kind: RecommendationConfiguration
recommenders:
- name: Resource
  acceptedResources:
  - kind: StatefulSet
    apiVersion: apps/v1
`))
	if err != nil {
		t.Fatal(err)
	}

	f.Settings = func() Settings { return settings }
	f.reconcile()

	if reason, message := f.ready(); reason != reasonRoundCompleted || !strings.HasPrefix(message, "0 targets were evaluated. 1 is left out") {
		t.Errorf("condition Ready is %s: %s, want %s without a target, because 1 is left out", reason, message, reasonRoundCompleted)
	}
}

// TestChangedSpecOutlivesAnOutage: a changed rule whose run fails is tried again, whatever its interval.
func TestChangedSpecOutlivesAnOutage(t *testing.T) {
	for _, interval := range []string{"24h", ""} {
		t.Run("interval "+interval, func(t *testing.T) {
			f := newFixture(t, testRule(interval), deployment("web"))
			f.reconcile()

			r := &analysisv1alpha1.RecommendationRule{}
			if err := f.Client.Get(t.Context(), client.ObjectKey{Name: "rule"}, r); err != nil {
				t.Fatal(err)
			}

			r.Generation++
			if err := f.Client.Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}

			f.source.fail = func(context.Context) error { return errors.New("down") }
			for range 2 {
				if got := f.reconcile(); got.RequeueAfter <= 0 || got.RequeueAfter > 2*firstRetry {
					t.Errorf("Reconcile during the outage comes back in %s, want at most %s", got.RequeueAfter, 2*firstRetry)
				}
			}

			if reason, _ := f.ready(); reason != reasonSourceFailed {
				t.Errorf("condition Ready has reason %s, want %s", reason, reasonSourceFailed)
			}

			f.source.fail = nil
			f.reconcile()

			if reason, _ := f.ready(); reason != reasonRoundCompleted {
				t.Errorf("condition Ready has reason %s after the outage, want %s", reason, reasonRoundCompleted)
			}
			if got := f.rule().Status.RunNumber; got != 2 {
				t.Errorf("run number %d, want 2", got)
			}
		})
	}
}
