// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// analyticsFixture is a reconciler whose cache and API server may differ in the Analytics that they have.
type analyticsFixture struct {
	*AnalyticsReconciler
	t     *testing.T
	lists int
}

func newAnalyticsFixture(t *testing.T, cached, live []client.Object) *analyticsFixture {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := analysisv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	f := &analyticsFixture{t: t}
	build := func(objects []client.Object) *fake.ClientBuilder {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&analysisv1alpha1.Analytics{}).
			WithIndex(&analysisv1alpha1.Recommendation{}, indexRuleUID, ruleUIDsOf).
			WithIndex(&analysisv1alpha1.Analytics{}, indexAnalyticsUID, analyticsUID).
			WithIndex(&analysisv1alpha1.RecommendationRule{}, indexAnalyticsUID, analyticsUID)
	}

	c := build(cached).Build()
	api := build(live).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			f.lists++
			return w.List(ctx, o, opts...)
		},
	}).Build()

	f.AnalyticsReconciler = &AnalyticsReconciler{
		Client: c, Live: api, Settings: BuiltinRegistry().DefaultSettings, Namespace: "crane-system", Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
	}

	return f
}

func newAnalytics(name, uid string) *analysisv1alpha1.Analytics {
	return &analysisv1alpha1.Analytics{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)},
		Spec:       analysisv1alpha1.AnalyticsSpec{Type: analysisv1alpha1.AnalysisTypeResource},
	}
}

// ruleOf returns the rule that the reconciler creates of an Analytics.
func ruleOf(a *analysisv1alpha1.Analytics) *analysisv1alpha1.RecommendationRule {
	r := &AnalyticsReconciler{Settings: BuiltinRegistry().DefaultSettings, Namespace: "crane-system"}
	recommender, _ := r.recommenderOf(a)
	rule := r.buildRule(a, recommender)
	rule.UID = "rule-of-" + a.UID

	return rule
}

// rules returns the UIDs of the Analytics of all rules.
func (f *analyticsFixture) rules() string {
	f.t.Helper()

	var list analysisv1alpha1.RecommendationRuleList
	if err := f.Client.List(f.t.Context(), &list); err != nil {
		f.t.Fatal(err)
	}

	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Annotations[analysisv1alpha1.AnnotationAnalyticsConversion])
	}

	return strings.Join(out, " ")
}

// TestRuleOfAnalytics_Names checks that the rule of an Analytics has a valid name and valid labels, whatever the Analytics is called.
func TestRuleOfAnalytics_Names(t *testing.T) {
	for length := 40; length <= 60; length++ {
		for _, end := range []string{"", ".b", "-b", ".b.c", "--b"} {
			rule := ruleOf(newAnalytics(strings.Repeat("a", length)+end, "uid"))
			if reasons := validation.IsDNS1123Subdomain(rule.Name); len(reasons) > 0 {
				t.Errorf("name of the rule = %q, want one that the API server accepts: %v", rule.Name, reasons)
			}

			for key, value := range rule.Labels {
				if reasons := validation.IsValidLabelValue(value); len(reasons) > 0 {
					t.Errorf("label %s of the rule = %q, want a label value: %v", key, value, reasons)
				}
			}
		}
	}
}

// TestPeriodOfTenants: an Analytics outside Crane's own namespace cannot make craned read histories at short intervals.
func TestPeriodOfTenants(t *testing.T) {
	r := &AnalyticsReconciler{Namespace: "crane-system"}
	for _, c := range []struct {
		namespace string
		seconds   int64
		want      string
	}{{"team-a", 1, "10m0s"}, {"team-a", 3600, "1h0m0s"}, {"team-a", 0, "24h0m0s"}, {"crane-system", 1, "1s"}} {
		a := &analysisv1alpha1.Analytics{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace}}
		strategy := &analysisv1alpha1.CompletionStrategy{CompletionStrategyType: analysisv1alpha1.CompletionStrategyPeriodical, PeriodSeconds: &c.seconds}
		if got := intervalOf(strategy, r.minPeriod(a)); got != c.want {
			t.Errorf("%s, %d s: %s, want %s", c.namespace, c.seconds, got, c.want)
		}
	}
}

// TestOrphans checks that the rules of deleted Analytics are deleted, those of Analytics that only the cache lacks are kept, and Analytics
// are listed from the API server only if the cache lacks one.
func TestOrphans(t *testing.T) {
	here := newAnalytics("here", "here")
	unseen := newAnalytics("unseen", "unseen")
	gone := newAnalytics("gone", "gone")
	manual := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "manual"}}

	f := newAnalyticsFixture(t, []client.Object{here, ruleOf(here), ruleOf(unseen), ruleOf(gone), manual}, []client.Object{here.DeepCopy(), unseen})
	for range 2 {
		if _, err := f.Reconcile(t.Context(), orphans()); err != nil {
			t.Fatal(err)
		}
	}

	if got := f.rules(); got != " here unseen" || f.lists != 2 {
		t.Errorf("Reconcile of orphans keeps the rules of %q after %d lists, want those of here and unseen after 2", got, f.lists)
	}

	f = newAnalyticsFixture(t, []client.Object{here, ruleOf(here), manual}, []client.Object{here.DeepCopy()})
	if _, err := f.Reconcile(t.Context(), orphans()); err != nil || f.lists != 0 || f.rules() != " here" {
		t.Errorf("Reconcile of no orphans: %d lists, rules of %q, error %v, want no list and the rule of here", f.lists, f.rules(), err)
	}
}

// TestAnalyticsOfAnEarlierName checks that an Analytics that replaces another one of its name has a rule once that of the other is deleted.
func TestAnalyticsOfAnEarlierName(t *testing.T) {
	earlier := newAnalytics("a", "earlier")
	later := newAnalytics("a", "later")

	f := newAnalyticsFixture(t, []client.Object{later, ruleOf(earlier)}, []client.Object{later.DeepCopy()})
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(later)}
	if _, err := f.Reconcile(t.Context(), request); err == nil || f.rules() != "earlier" {
		t.Errorf("Reconcile beside the rule of an earlier Analytics: error %v, rules of %q, want an error and the rule of the earlier one", err, f.rules())
	}
	if _, err := f.Reconcile(t.Context(), orphans()); err != nil {
		t.Fatal(err)
	}

	if _, err := f.Reconcile(t.Context(), request); err != nil || f.rules() != "later" {
		t.Errorf("Reconcile after the earlier Analytics: error %v, rules of %q, want the rule of the later one", err, f.rules())
	}
}

// TestAnalyticsNamesNoAddress checks that the status of an Analytics, which is in a namespace, has no address of a server from the
// status of its rule, which is not.
func TestAnalyticsNamesNoAddress(t *testing.T) {
	for reason, want := range map[string]string{
		reasonSourceFailed:  "RecommendationRule r failed and is tried again; its status has the error.",
		reasonInvalidConfig: "RecommendationRule r: http://10.1.2.3:9090 of the rule's own",
	} {
		rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "r", Generation: 1}}
		rule.Status.Conditions = []metav1.Condition{{
			Type: analysisv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "http://10.1.2.3:9090 of the rule's own", ObservedGeneration: 1,
		}}

		if got := analyticsCondition(rule, []string{"key"}); got.reason != reason || !strings.HasPrefix(got.message, want) || !strings.HasSuffix(got.message, "key.") {
			t.Errorf("analyticsCondition of reason %s = %+v, want a message from %q to the ignored key", reason, got, want)
		}
	}
}
