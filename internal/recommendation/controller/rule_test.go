// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// TestReconcile_WritesAndQueriesOfARun: a run costs a create and a status for each target and asks the source once for each
// resource; until the next is due nothing is read and nothing written.
func TestReconcile_WritesAndQueriesOfARun(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"), deployment("unheard"))
	if r := f.reconcile(); r.RequeueAfter != 24*time.Hour {
		t.Errorf("next run in %s, want 24h", r.RequeueAfter)
	}
	if reason, message := f.ready(); reason != reasonRoundCompleted {
		t.Errorf("condition Ready is %s: %s, want %s", reason, message, reasonRoundCompleted)
	}
	if n := f.writes.Load(); n != 4 {
		t.Errorf("%d writes for two new recommendations, want 4", n)
	}

	if len(f.source.asked) != 2 || len(f.source.asked[0].Namespaces) != 1 {
		t.Errorf("queries %+v, want 2 of one namespace", f.source.asked)
	}

	f.clock.SetTime(f.clock.Now().Add(23 * time.Hour))
	if r := f.reconcile(); r.RequeueAfter != time.Hour || f.writes.Load() != 4 || len(f.source.asked) != 2 {
		t.Errorf("an hour early: next run in %s, %d writes, %d queries, want 1h, 4 and 2", r.RequeueAfter, f.writes.Load(), len(f.source.asked))
	}

	f.clock.SetTime(f.clock.Now().Add(time.Hour))
	f.reconcile()

	if n := f.writes.Load(); n != 4 || len(f.source.asked) != 4 {
		t.Errorf("%d writes and %d questions after the second run, want 4 and 4: it was evaluated and nothing has changed", n, len(f.source.asked))
	}
	if got := f.rule().Status.RunNumber; got != 2 {
		t.Errorf("run number %d, want 2", got)
	}

	// What changes costs a write of the object and one of its status.
	f.source.days = 6
	f.clock.SetTime(f.clock.Now().Add(24 * time.Hour))
	f.reconcile()

	if n := f.writes.Load(); n != 6 {
		t.Errorf("%d writes after the third run, want 6: web has less history", n)
	}
	if got := f.all()["web"].Annotations[analysisv1alpha1.AnnotationRunNumber]; got != "3" {
		t.Errorf("run number %s, want 3", got)
	}
}

// TestReconcile_EvidenceChangesAlone: where the same is proposed for the same reasons, the numbers behind it are no reason to write. Who asks
// to see it evaluated gets those of today.
func TestReconcile_EvidenceChangesAlone(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.reconcile()

	fresh := f.all()["web"]
	said, steps, found := strings.Cut(fresh.Status.Description, " Steps: ")
	if !found || !strings.Contains(steps, "app cpu estimate: ") || !strings.Contains(steps, "app memory margin: ") {
		t.Fatalf("description %s, want the steps of the estimate and the margin", fresh.Status.Description)
	}

	older := fresh.DeepCopy()
	older.Status.Description = said + " Steps: app cpu estimate: 499m."
	if err := f.Client.Status().Update(t.Context(), older); err != nil {
		t.Fatal(err)
	}

	f.writes.Store(0)
	f.clock.SetTime(f.clock.Now().Add(24 * time.Hour))
	f.reconcile()

	if got := f.all()["web"].Status.Description; f.writes.Load() != 0 || got != older.Status.Description {
		t.Errorf("%d writes, description %s, want no write where the numbers alone change", f.writes.Load(), got)
	}

	asked := f.all()["web"]
	asked.Annotations[analysisv1alpha1.AnnotationRunNumber] = "0"
	if err := f.Client.Update(t.Context(), &asked); err != nil {
		t.Fatal(err)
	}

	f.reconcile()
	if got := f.all()["web"].Status.Description; got != fresh.Status.Description {
		t.Errorf("description after a request is %s, want %s", got, fresh.Status.Description)
	}

	other := f.all()["web"]
	other.Status.Description = "Something else. Steps: app cpu estimate: 499m."
	if err := f.Client.Status().Update(t.Context(), &other); err != nil {
		t.Fatal(err)
	}

	f.clock.SetTime(f.clock.Now().Add(24 * time.Hour))
	f.reconcile()

	if got := f.all()["web"].Status.Description; got != fresh.Status.Description {
		t.Errorf("description after another reason is %s, want %s", got, fresh.Status.Description)
	}
}

// TestReconcile_SourceFails: nothing is written, retries are spaced, and one event reports it.
func TestReconcile_SourceFails(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.source.fail = func(context.Context) error { return errors.New("connection refused") }
	var waits []time.Duration
	for range 4 {
		waits = append(waits, f.reconcile().RequeueAfter)
	}

	if fmt.Sprint(waits) != "[5s 10s 20s 40s]" {
		t.Errorf("retries are spaced by %v, want [5s 10s 20s 40s]", waits)
	}
	if reason, message := f.ready(); reason != reasonSourceFailed || !strings.Contains(message, "connection refused") {
		t.Errorf("condition Ready is %s: %s, want %s with the error", reason, message, reasonSourceFailed)
	}
	if n := f.countEvents(reasonSourceFailed); n != 1 || f.writes.Load() != 0 {
		t.Errorf("%d events, %d writes; want 1 and none", n, f.writes.Load())
	}

	f.source.fail = nil
	if r := f.reconcile(); r.RequeueAfter != 24*time.Hour || len(f.all()) != 1 {
		t.Errorf("Reconcile after the outage = %v with %v, want the next run in 24h and 1 recommendation", r, f.all())
	}
}

// TestReconcile_SourceTimesOut: a source that never answers ends a run by its time limit.
func TestReconcile_SourceTimesOut(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.HistoryTimeout = time.Millisecond
	f.source.fail = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if r := f.reconcile(); r.RequeueAfter != firstRetry {
		t.Errorf("next try in %s, want %s", r.RequeueAfter, firstRetry)
	}
	if reason, _ := f.ready(); reason != reasonSourceFailed {
		t.Errorf("condition Ready has reason %s, want %s", reason, reasonSourceFailed)
	}
}

// TestReconcile_ProcessStops: a run that is cut off by the end of the process reports nothing.
func TestReconcile_ProcessStops(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	ctx, cancel := context.WithCancel(t.Context())
	f.source.fail = func(context.Context) error { cancel(); return ctx.Err() }

	result, err := f.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "rule"}})
	if err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile of a process that stops = %v, error %v, want neither a retry nor an error", result, err)
	}
	if reason, _ := f.ready(); reason != "" || f.writes.Load() != 0 {
		t.Errorf("reason %q after %d writes, want no condition and no write", reason, f.writes.Load())
	}
}

// TestRunSurvivesCrash checks that a new process finishes the run of one that crashed before any of its writes, and repeats no
// write.
func TestRunSurvivesCrash(t *testing.T) {
	for survived := range 4 {
		t.Run(fmt.Sprintf("after %d writes", survived), func(t *testing.T) {
			f := newFixture(t, testRule("24h"), deployment("web"), deployment("api"))
			f.source.deployments = []string{"web", "api"}
			f.Workers = 1
			f.refuse = func(string, client.Object) error {
				if f.writes.Load() >= int64(survived) {
					return errors.New("killed")
				}

				return nil
			}

			f.reconcile()
			if reason, _ := f.ready(); reason != reasonWriteFailed {
				t.Errorf("condition Ready has reason %s, want %s", reason, reasonWriteFailed)
			}

			f.refuse = nil
			f.progress = progressStore{} // Another process knows only what was written.
			f.reconcile()

			if reason, message := f.ready(); reason != reasonRoundCompleted {
				t.Errorf("condition Ready is %s: %s, want %s", reason, message, reasonRoundCompleted)
			}
			if n := f.writes.Load(); n != 4 {
				t.Errorf("%d writes in all, want 4", n)
			}

			for name, r := range f.all() {
				if r.Status.RecommendedValue == "" || r.Annotations[analysisv1alpha1.AnnotationRunNumber] != "1" {
					t.Errorf("recommendation %s is %+v, want a value and run number 1", name, r)
				}
			}
		})
	}
}

// TestReconcile_EverySecondWriteFails: conflicts and throttling cost tries, not runs.
func TestReconcile_EverySecondWriteFails(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"), deployment("api"))
	f.Workers = 1
	n := 0

	f.refuse = func(string, client.Object) error {
		n++

		if n%2 == 0 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "recommendations"}, "x", errors.New("changed meanwhile"))
		}

		return nil
	}

	f.settle()
	if reason, message := f.ready(); reason != reasonRoundCompleted {
		t.Errorf("condition Ready is %s: %s, want %s", reason, message, reasonRoundCompleted)
	}
}

// TestReconcile_OneWriteFailsAlways: after some tries the run counts as done, so that the others are not kept from the
// next one.
func TestReconcile_OneWriteFailsAlways(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"), deployment("cursed"))
	f.refuse = func(_ string, o client.Object) error {
		if r, ok := o.(*analysisv1alpha1.Recommendation); ok && r.Spec.TargetRef.Name == "cursed" {
			return errors.New("denied by a webhook")
		}

		return nil
	}

	tries := 0
	for ; tries < 2*maxTries; tries++ {
		r := f.reconcile()
		if r.RequeueAfter == 24*time.Hour {
			break
		}

		if reason, _ := f.ready(); reason != reasonWriteFailed {
			t.Errorf("reason %s after try %d, want %s", reason, tries, reasonWriteFailed)
		}
		f.clock.SetTime(f.clock.Now().Add(r.RequeueAfter))
	}

	if tries != maxTries-1 {
		t.Errorf("gave up after %d tries, want %d", tries+1, maxTries)
	}
	if reason, message := f.ready(); reason != reasonTargetsFailed || !strings.Contains(message, "1 of 2 targets") {
		t.Errorf("condition Ready is %s: %s, want %s of 1 of 2 targets", reason, message, reasonTargetsFailed)
	}
	if len(f.source.asked) != 2*maxTries {
		t.Errorf("%d queries, want %d: only the target that failed is evaluated again", len(f.source.asked), 2*maxTries)
	}

	if n := f.writes.Load(); n != 2 {
		t.Errorf("%d writes, want 2: the one that can be written, once", n)
	}
}

func TestNamespaceTerminating(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.refuse = func(string, client.Object) error {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "recommendations"}, "x", errors.New("terminating"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}

	f.reconcile()
	if reason, message := f.ready(); reason != reasonRoundCompleted {
		t.Errorf("condition Ready is %s: %s, want %s", reason, message, reasonRoundCompleted)
	}
}

// TestReconcile_ValueIsKept checks that a workload whose history is gone keeps its last value, with the reason, and that the recommendation of a
// deleted target is deleted.
func TestReconcile_ValueIsKept(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"), deployment("gone"))
	f.source.deployments = []string{"web", "gone"}
	f.reconcile()

	before := f.all()["web"]
	if before.Status.RecommendedValue == "" {
		t.Fatalf("recommendation %+v, want a value", before)
	}

	if err := f.Client.Delete(t.Context(), deployment("gone")); err != nil {
		t.Fatal(err)
	}

	f.source.deployments = nil
	f.clock.SetTime(f.clock.Now().Add(24 * time.Hour))
	f.reconcile()

	after := f.all()
	if _, ok := after["gone"]; ok || len(after) != 1 {
		t.Errorf("recommendations %v, want that of web alone", after)
	}

	web := after["web"]
	if web.Status.RecommendedValue != before.Status.RecommendedValue || !web.Status.LastUpdateTime.Equal(before.Status.LastUpdateTime) {
		t.Errorf("status %+v, want the last value and its time kept", web.Status)
	}

	failed := meta.FindStatusCondition(web.Status.Conditions, conditionFailed)
	if failed == nil || failed.Status != metav1.ConditionTrue || web.Annotations[analysisv1alpha1.AnnotationMessage] == analysisv1alpha1.MessageSuccess {
		t.Errorf("recommendation %+v, want condition Failed and a message", web)
	}
}

// TestFoundByTarget checks that a Recommendation that gocrane created under a random name, or an earlier version of Crane under the name
// of the rule, is taken over and not duplicated, and that a user's adoption type stays.
func TestFoundByTarget(t *testing.T) {
	for _, name := range []string{"rule-resource-x7f2k", "rule-resource-0123456789"} {
		checkTakenOver(t, name)
	}
}

func checkTakenOver(t *testing.T, name string) {
	t.Helper()

	old := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{analysisv1alpha1.LabelRuleUID: "rule-uid", "mine": "yes"},
		},
		Spec: analysisv1alpha1.RecommendationSpec{
			Type: analysisv1alpha1.AnalysisTypeResource, AdoptionType: analysisv1alpha1.AdoptionTypeStatus,
			TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		},
	}

	f := newFixture(t, testRule("24h"), deployment("web"), old)
	f.reconcile()

	var list analysisv1alpha1.RecommendationList
	if err := f.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}

	if len(list.Items) != 1 || list.Items[0].Name != old.Name || list.Items[0].Status.RecommendedValue == "" {
		t.Fatalf("recommendations %+v, want %s alone, with a value", list.Items, old.Name)
	}

	if got := list.Items[0]; got.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeStatus || got.Labels["mine"] != "yes" {
		t.Errorf("recommendation %+v, want the adoption type and the label of the user kept", got)
	}
}

// TestForgedLabels: a Recommendation in another namespace with the labels of a rule does not receive the value of the target.
func TestForgedLabels(t *testing.T) {
	forged := recommendationOf("forged", time.Unix(1, 0), time.Unix(1, 0))
	forged.Namespace = "attacker"
	forged.Labels = map[string]string{analysisv1alpha1.LabelRuleUID: "rule-uid"}
	f := newFixture(t, testRule("24h"), deployment("web"), forged)
	f.reconcile()

	var list analysisv1alpha1.RecommendationList
	if err := f.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}

	for _, rec := range list.Items {
		if (rec.Namespace == "shop") != (rec.Status.RecommendedValue != "") {
			t.Errorf("recommendation %s/%s has value %q, want a value in namespace shop alone", rec.Namespace, rec.Name, rec.Status.RecommendedValue)
		}
	}

	if len(list.Items) != 2 {
		t.Errorf("%d Recommendations, want the forged one and that of the rule", len(list.Items))
	}
}

func TestRuleWithoutRecommenders(t *testing.T) {
	r := testRule("24h")
	f := newFixture(t, r, deployment("web"))
	f.reconcile()

	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: "rule"}, r); err != nil {
		t.Fatal(err)
	}

	r.Spec.Recommenders = nil
	r.Generation = 2
	if err := f.Client.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	f.reconcile()
	if got := f.all(); len(got) != 0 {
		t.Errorf("recommendations %v without a recommender, want none", got)
	}
}

// TestInvalidInterval: one condition, one event, and no further try until the rule changes.
func TestInvalidInterval(t *testing.T) {
	f := newFixture(t, testRule("soon"), deployment("web"))
	for range 2 {
		if r := f.reconcile(); r.RequeueAfter != 0 {
			t.Errorf("a rule with an invalid interval is retried in %s, want never", r.RequeueAfter)
		}
	}

	if reason, message := f.ready(); reason != reasonInvalidInterval || !strings.Contains(message, `"soon"`) {
		t.Errorf("condition Ready is %s: %s, want %s with the interval", reason, message, reasonInvalidInterval)
	}
	if n := f.countEvents(reasonInvalidInterval); n != 1 || len(f.source.asked) != 0 {
		t.Errorf("%d events, %d questions; want 1 and none", n, len(f.source.asked))
	}
}

// TestReconcile_CacheLags: a rule whose last run the cache has not seen yet does not run twice.
func TestReconcile_CacheLags(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	behind := &analysisv1alpha1.RecommendationRule{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: "rule"}, behind); err != nil {
		t.Fatal(err)
	}

	f.reconcile()
	live := f.Client
	f.Client = interceptor.NewClient(live.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r, ok := o.(*analysisv1alpha1.RecommendationRule); ok {
				behind.DeepCopyInto(r)
				return nil
			}

			return c.Get(ctx, key, o, opts...)
		},
	})

	asked := len(f.source.asked)
	if r := f.reconcile(); r.RequeueAfter <= 0 || len(f.source.asked) != asked {
		t.Errorf("next run in %s after %d more queries, want a wait without queries", r.RequeueAfter, len(f.source.asked)-asked)
	}
}

// TestWriteFailureAfterOutage: tries that a source cost are not taken from those that a write has.
func TestWriteFailureAfterOutage(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.source.fail = func(context.Context) error { return errors.New("down") }
	for range 2 * maxTries {
		f.reconcile()
	}

	f.source.fail = nil
	f.refuse = func(string, client.Object) error { return errors.New("denied") }
	if r := f.reconcile(); r.RequeueAfter != firstRetry {
		t.Errorf("after the first failed write the next try is in %s, want %s", r.RequeueAfter, firstRetry)
	}
}

// TestRuleWithoutTargets checks that the condition of a rule that can select nothing has the reason.
func TestRuleWithoutTargets(t *testing.T) {
	for name, c := range map[string]struct {
		change          func(*analysisv1alpha1.RecommendationRuleSpec)
		status          metav1.ConditionStatus
		reason, message string
	}{
		"missing namespace": {
			func(s *analysisv1alpha1.RecommendationRuleSpec) {
				s.NamespaceSelector = analysisv1alpha1.NamespaceSelector{MatchNames: []string{"shop", "shopp"}}
			}, metav1.ConditionFalse, reasonNamespaceNotFound, "1 namespace (shopp) not found",
		},
		"unknown kind": {
			func(s *analysisv1alpha1.RecommendationRuleSpec) { s.ResourceSelectors[0].Kind = "Deploymint" },
			metav1.ConditionFalse, reasonSelectorFailed, "Deploymint",
		},
		"no match": {
			func(s *analysisv1alpha1.RecommendationRuleSpec) { s.ResourceSelectors[0].Name = "absent" },
			metav1.ConditionTrue, reasonNoTargets, "No object matches spec.resourceSelectors[0] (Deployment absent)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := testRule("24h")
			c.change(&rule.Spec)
			f := newFixture(t, rule, deployment("web"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			f.reconcile()

			ready := meta.FindStatusCondition(f.rule().Status.Conditions, analysisv1alpha1.ConditionReady)
			if ready == nil || ready.Status != c.status || ready.Reason != c.reason || !strings.Contains(ready.Message, c.message) {
				t.Errorf("condition %+v, want status %v, reason %s and a message with %q", ready, c.status, c.reason, c.message)
			}
		})
	}
}
