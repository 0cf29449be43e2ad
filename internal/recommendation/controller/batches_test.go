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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
)

// spread are Deployments in several namespaces.
func spread(namespaces, each int) []client.Object {
	var out []client.Object
	for n := range namespaces {
		for i := range each {
			d := deployment(fmt.Sprintf("web-%d", i))
			d.Namespace = fmt.Sprintf("ns-%02d", n)
			out = append(out, d)
		}
	}

	return out
}

// TestBatches: a run of many targets has several batches of whole namespaces, and reports its number and its end once.
func TestBatches(t *testing.T) {
	f := newFixture(t, append(spread(5, 4), testRule("24h"))...)
	f.BatchSize = 9
	var sizes []int
	for last := 0; ; {
		r := f.reconcile()
		n := f.objects()
		sizes = append(sizes, n-last)
		last = n

		if r.RequeueAfter > time.Second {
			break
		}

		if reason, _ := f.ready(); reason != "" {
			t.Errorf("condition Ready has reason %s in the middle of a run, want no condition", reason)
		}
	}

	if fmt.Sprint(sizes) != "[8 8 4]" {
		t.Errorf("batches have %v targets, want [8 8 4]", sizes)
	}
	if rule := f.rule(); rule.Status.RunNumber != 1 {
		t.Errorf("status %+v, want run number 1", rule.Status)
	}
	if reason, message := f.ready(); reason != reasonRoundCompleted || !strings.HasPrefix(message, "20 targets") {
		t.Errorf("condition Ready is %s: %s, want %s of 20 targets", reason, message, reasonRoundCompleted)
	}

	for _, req := range f.source.asked {
		if len(req.Namespaces) > 2 {
			t.Errorf("a batch read namespaces %v, want at most its own 2", req.Namespaces)
		}
	}

	// One namespace that is larger than a batch is one batch.
	first, remaining := splitBatch([]task{{id: identity{namespace: "b"}}, {id: identity{namespace: "a"}}, {id: identity{namespace: "a"}}}, 1)
	if len(first) != 2 || len(remaining) != 1 || first[0].id.namespace != "a" {
		t.Errorf("splitBatch = %v and %v, want both tasks of namespace a first, then that of b", first, remaining)
	}
}

// objects counts the recommendations of all namespaces.
func (f *fixture) objects() int {
	f.t.Helper()

	var list analysisv1alpha1.RecommendationList
	if err := f.Client.List(f.t.Context(), &list); err != nil {
		f.t.Fatal(err)
	}

	return len(list.Items)
}

// TestBatchFails: what earlier batches wrote stands, the run goes on where it stopped, and nothing is evaluated twice.
func TestBatchFails(t *testing.T) {
	f := newFixture(t, append(spread(4, 2), testRule("24h"))...)
	f.BatchSize = 4
	f.reconcile()

	f.source.fail = func(context.Context) error { return errors.New("down") }
	if r := f.reconcile(); r.RequeueAfter != firstRetry || f.objects() != 4 {
		t.Errorf("Reconcile = %v with %d recommendations, want a retry after %s with 4", r, f.objects(), firstRetry)
	}

	f.source.fail = nil
	asked := len(f.source.asked)
	f.settle()

	if reason, _ := f.ready(); reason != reasonRoundCompleted || f.objects() != 8 || len(f.source.asked) != asked+2 {
		t.Errorf("reason %s, %d recommendations, %d more queries, want %s with 8 after 2", reason, f.objects(), len(f.source.asked)-asked, reasonRoundCompleted)
	}
}

// TestSpecChangedBetweenBatches: what was evaluated by the old spec is evaluated again by the new one.
func TestSpecChangedBetweenBatches(t *testing.T) {
	f := newFixture(t, append(spread(2, 2), testRule("24h"))...)
	f.BatchSize = 2
	f.reconcile()
	r := f.rule()

	r.Generation++
	r.Spec.RunInterval = "12h"
	if err := f.Client.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	f.settle()
	var list analysisv1alpha1.RecommendationList
	if err := f.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}

	if len(list.Items) != 4 {
		t.Fatalf("%d recommendations, want 4", len(list.Items))
	}

	if n := len(f.source.asked); n != 6 {
		t.Errorf("%d questions, want 6: the first batch, and both batches of the new spec", n)
	}
}

// TestEvaluationRequested: a lowered, missing or unreadable run number asks for an evaluation, any other does not.
func TestEvaluationRequested(t *testing.T) {
	for text, want := range map[string]bool{"5": false, "6": false, "4": true, "0": true, "-1": true, "": true, "many": true} {
		rec := &analysisv1alpha1.Recommendation{}
		rec.Annotations = map[string]string{analysisv1alpha1.AnnotationEvaluatedRound: runMark(3, 5), analysisv1alpha1.AnnotationRunNumber: text}
		if got := evaluationRequested(rec); got != want {
			t.Errorf("evaluationRequested with run number %q = %t, want %t", text, got, want)
		}
	}

	if evaluationRequested(&analysisv1alpha1.Recommendation{}) {
		t.Error("evaluationRequested of a Recommendation of gocrane = true, want false")
	}
}

// TestReconcile_RequestedWhileStopped: a run number that was lowered while craned was down is found at the next reconciliation.
func TestReconcile_RequestedWhileStopped(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.reconcile()

	web := f.all()["web"]
	web.Annotations[analysisv1alpha1.AnnotationRunNumber] = "0"
	if err := f.Client.Update(t.Context(), &web); err != nil {
		t.Fatal(err)
	}

	f.progress = progressStore{} // Another process.
	asked := len(f.source.asked)
	f.clock.SetTime(f.clock.Now().Add(time.Hour))

	if r := f.reconcile(); r.RequeueAfter != 23*time.Hour || len(f.source.asked) != asked+2 {
		t.Errorf("Reconcile = %v after %d more queries, want the next run in 23h after 2", r, len(f.source.asked)-asked)
	}
	if got := f.all()["web"].Annotations[analysisv1alpha1.AnnotationRunNumber]; got != "1" {
		t.Errorf("run number %q, want 1", got)
	}

	f.reconcile()

	if len(f.source.asked) != asked+2 {
		t.Errorf("%d more queries, want 2: a requested evaluation happens once", len(f.source.asked)-asked)
	}
}

// clearing is a recommender that has a finding about a target until clear is set.
type clearing struct{ clear *bool }

func (clearing) gather(context.Context, *runData, []workload.Workload) error { return nil }

func (c clearing) decide(*runData, workload.Workload) (decision, error) {
	if *c.clear {
		return decision{plan: recommend.Plan{State: recommend.Clear, Description: "It is used again."}}, nil
	}

	return decision{plan: recommend.Plan{State: recommend.Ready, Action: recommend.Delete, Reason: "Unused", Description: "Nobody uses it."}}, nil
}

// TestWrite_Clear: of a target with which nothing is wrong there is no Recommendation; one that there was goes, with an event.
func TestWrite_Clear(t *testing.T) {
	isClear := true
	f := newFixture(t, testRule("24h"), deployment("web"))
	b := batch{rule: f.rule(), now: f.clock.Now(), number: 1}
	one := &configuredRecommender{recommender: recommender{name: "Unused", supports: supportsWorkloads}, evaluator: clearing{&isClear}}

	write := func() map[string]analysisv1alpha1.Recommendation {
		t.Helper()

		target := workload.Workload{Ref: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}
		next := task{id: identityOf(target.Ref, "Unused"), recommender: one, target: target}
		if old, ok := f.all()["web"]; ok {
			next.existing = &old
		}

		proposed := next.propose(nil, nil)
		if err := f.write(t.Context(), b, &proposed); err != nil {
			t.Fatal(err)
		}

		return f.all()
	}

	if all := write(); len(all) != 0 {
		t.Errorf("recommendations %v for the state Clear, want none", all)
	}

	isClear = false
	if all := write(); all["web"].Status.Action != analysisv1alpha1.ActionDelete || all["web"].Status.RecommendedValue != "" {
		t.Errorf("recommendations %+v, want web with action Delete and no value", all)
	}

	isClear = true
	if all := write(); len(all) != 0 || f.countEvents(reasonCleared) != 1 {
		t.Errorf("recommendations %v and %d events after Clear, want none and 1 event", all, f.countEvents(reasonCleared))
	}
}

// TestClusterScopedTargets: they are there for rules of all namespaces alone.
func TestClusterScopedTargets(t *testing.T) {
	f := newFixture(t)
	node := &corev1.Node{}
	node.Name = "n1"
	if err := f.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}

	rule := testRule("24h")
	rule.Spec.ResourceSelectors[0].Kind = "Node"
	for any, want := range map[bool]int{true: 1, false: 0} {
		rule.Spec.NamespaceSelector = analysisv1alpha1.NamespaceSelector{Any: any, MatchNames: []string{"shop"}}
		s, err := f.selectTargets(t.Context(), rule)
		n := 0
		for _, w := range s.targets {
			if w.Name == "n1" && w.Namespace == "" {
				n++
			}
		}

		if err != nil || len(s.failures) > 0 || n != want {
			t.Errorf("selectTargets with any %t: %d targets, error %v, failures %v, want %d targets", any, n, err, s.failures, want)
		}
	}

	if supportsWorkloads(workload.Ref{APIVersion: "v1", Kind: "Node"}) || !supportsWorkloads(workload.Ref{APIVersion: "x.io/v1", Kind: "Node"}) ||
		supportsScalable(workload.Ref{APIVersion: "apps/v1", Kind: "DaemonSet"}) || !supportsScalable(workload.Ref{APIVersion: "apps/v1", Kind: "StatefulSet"}) {
		t.Error("supportsWorkloads or supportsScalable is wrong: want Nodes of other groups alone, and StatefulSets alone")
	}
}

// TestReconcile_TwentyThousandPods: a rule that selects pods reads all of them, page by page, and evaluates those without a
// controller.
func TestReconcile_TwentyThousandPods(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 20,000 objects")
	}

	yes := true
	objects := []client.Object{testRule("24h")}
	for i := range 20_000 {
		pod := &corev1.Pod{}
		pod.Namespace = "shop"

		pod.Name = fmt.Sprintf("pod-%05d", i)
		pod.UID = "u"
		if i%1000 != 0 {
			pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "u", Controller: &yes})
		}

		objects = append(objects, pod)
	}

	f := newFixture(t, objects...)
	r := f.rule()
	r.Spec.ResourceSelectors[0].Kind = "Pod"
	if err := f.Client.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	f.settle()
	if reason, message := f.ready(); reason != reasonRoundCompleted || !strings.HasPrefix(message, "20 targets") {
		t.Errorf("condition Ready is %s: %s, want %s of 20 targets", reason, message, reasonRoundCompleted)
	}
	if n := f.objects(); n != 20 {
		t.Errorf("%d recommendations, want 20", n)
	}
}

// TestPropose_UnreadableTargetKeepsValue checks that a target that cannot be read keeps its last value, with the reason.
func TestPropose_UnreadableTargetKeepsValue(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.reconcile()
	before := f.all()["web"].Status.RecommendedValue

	one, err := BuiltinRegistry().DefaultSettings().configure(analysisv1alpha1.Recommender{Name: "Resource"})
	if err != nil {
		t.Fatal(err)
	}

	old := f.all()["web"]
	target := workload.Workload{Ref: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}
	next := task{id: identityOf(target.Ref, "Resource"), recommender: &one, target: target, existing: &old}
	unreadable := map[identity]error{identityOf(target.Ref, ""): errors.New("no scale subresource")}

	p := next.propose(nil, selection{unreadable: unreadable}.errorOf(next))
	if p.err == nil || p.content.RecommendedValue != before || !strings.Contains(p.content.Description, "The last recommendation is kept") {
		t.Errorf("propose = %+v, want an error and the last value, described as kept", p)
	}
}

// TestReconcile_TargetWithoutTemplate: a target that cannot be read is retried with growing pauses, its status shows the error, and then the
// run ends without it; one that becomes readable in time is evaluated.
func TestReconcile_TargetWithoutTemplate(t *testing.T) {
	for _, heals := range []bool{false, true} {
		t.Run(fmt.Sprintf("heals %t", heals), func(t *testing.T) {
			// Valid without a template, in the API's own words.
			fleet := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
			f := newFixture(t, testRule("24h"), fleet, deployment("api"))
			f.Lister.Scales = nil // The fake API serves no scale here.

			r := f.rule()
			r.Spec.ResourceSelectors = append(r.Spec.ResourceSelectors, analysisv1alpha1.ResourceSelector{Kind: "ReplicationController"})
			if err := f.Client.Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}

			var waits []time.Duration
			for range 2 * maxTries {
				if heals && len(waits) == 2 {
					if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(fleet), fleet); err != nil {
						t.Fatal(err)
					}

					fleet.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
					if err := f.Client.Update(t.Context(), fleet); err != nil {
						t.Fatal(err)
					}
				}

				result := f.reconcile()
				waits = append(waits, result.RequeueAfter)

				if result.RequeueAfter == 24*time.Hour {
					break
				}

				if got := f.all()["web"]; !meta.IsStatusConditionTrue(got.Status.Conditions, conditionFailed) || !strings.Contains(got.Status.Description, "no pod template") {
					t.Errorf("status %+v, want condition Failed because there is no pod template", got.Status)
				}
				f.clock.SetTime(f.clock.Now().Add(result.RequeueAfter))
			}

			want := "[5s 10s 20s 40s 24h0m0s]"
			reason := reasonTargetsFailed
			if heals {
				want = "[5s 10s 24h0m0s]"
				reason = reasonRoundCompleted
			}

			if got, message := f.ready(); fmt.Sprint(waits) != want || got != reason {
				t.Errorf("waits %v, want %s; %s: %s", waits, want, got, message)
			}
		})
	}
}

// TestReconcile_FailedTargetIsDeleted: a run does not wait for a failed target that was deleted.
func TestReconcile_FailedTargetIsDeleted(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"), deployment("doomed"))
	f.refuse = func(_ string, o client.Object) error {
		if r, ok := o.(*analysisv1alpha1.Recommendation); ok && r.Spec.TargetRef.Name == "doomed" {
			return errors.New("denied")
		}

		return nil
	}

	f.reconcile()
	if err := f.Client.Delete(t.Context(), deployment("doomed")); err != nil {
		t.Fatal(err)
	}

	f.clock.SetTime(f.clock.Now().Add(firstRetry))
	if r := f.reconcile(); r.RequeueAfter != 24*time.Hour {
		t.Errorf("Reconcile comes back in %s, want 24h", r.RequeueAfter)
	}
	if reason, message := f.ready(); reason != reasonRoundCompleted {
		t.Errorf("condition Ready is %s: %s, want %s", reason, message, reasonRoundCompleted)
	}
}
