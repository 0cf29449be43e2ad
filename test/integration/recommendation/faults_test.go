// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/test/integration/harness"
)

// near reports whether the CPU of the only container of a recommended value is within 5 % of a number of cores.
func near(value string, cores float64) bool {
	var v analysisv1alpha1.ProposedRecommendation
	if err := yaml.Unmarshal([]byte(value), &v); err != nil || v.ResourceRequest == nil || len(v.ResourceRequest.Containers) != 1 {
		return false
	}

	q, err := apiresource.ParseQuantity(v.ResourceRequest.Containers[0].Target[corev1.ResourceCPU])
	return err == nil && math.Abs(q.AsApproximateFloat64()/cores-1) < 0.05
}

// faultyTransport rejects every second write of each path, starting with the first, alternately with 429 and with a conflict. It
// counts by path, because the writes of another object could make each write of one object the rejected one.
type faultyTransport struct {
	http.RoundTripper
	mu      sync.Mutex
	seen    map[string]int
	refused atomic.Int64
}

func (f *faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "/analysis.crane.io/") {
		return f.RoundTripper.RoundTrip(r)
	}

	f.mu.Lock()
	f.seen[r.URL.Path]++
	pass := f.seen[r.URL.Path]%2 == 0
	f.mu.Unlock()

	if pass {
		return f.RoundTripper.RoundTrip(r)
	}

	status := apierrors.NewConflict(schema.GroupResource{Resource: "recommendations"}, "x", errors.New("the object has been modified")).Status()
	if f.refused.Add(1)%2 == 1 {
		status = apierrors.NewTooManyRequests("later", 0).Status()
	}

	status.APIVersion, status.Kind = "v1", "Status"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}

	if r.Body != nil {
		_ = r.Body.Close()
	}

	return &http.Response{
		StatusCode: int(status.Code), Status: http.StatusText(int(status.Code)), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// TestEverySecondWriteRefused checks that each target has one Recommendation although every second write fails.
func TestEverySecondWriteRefused(t *testing.T) {
	f := newFixture(t)
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		f.past.uses = append(f.past.uses, usageOf{"Deployment", name, 1, 0.2, 0.2, 300 * mib, 0})
	}

	f.deploy(1, names...)
	rule := f.rule("refused", "Resource")
	f.create(rule)
	faults := &faultyTransport{seen: map[string]int{}}
	f.start(setup{wrap: func(rt http.RoundTripper) http.RoundTripper {
		faults.RoundTripper = rt
		return faults
	}})

	f.eventually("every target has its recommendations", func(ctx context.Context) error {
		r := &analysisv1alpha1.RecommendationRule{}
		if err := f.Get(ctx, client.ObjectKeyFromObject(rule), r); err != nil {
			return err
		}

		all, err := f.all(ctx) // fails if one exists twice
		if err != nil {
			return err
		}

		for _, name := range names {
			if one := all["Resource/"+name]; harness.ConditionText(one.Status.Conditions, "Ready") != "True/RecommendationReady" || one.Annotations[analysisv1alpha1.AnnotationRunNumber] != "1" {
				return fmt.Errorf("%s: %s %v; rule %+v", name, harness.ConditionText(one.Status.Conditions, "Ready"), one.Annotations, r.Status)
			}
		}

		if r.Status.RunNumber != 1 {
			return fmt.Errorf("%+v", r.Status)
		}

		return nil
	})

	if faults.refused.Load() == 0 {
		t.Error("no write was rejected, want some")
	}
}

//go:embed testdata/crds.yaml
var crds string

func (f *fixture) install() {
	f.t.Helper()

	applier, err := manifest.NewApplier(control.Config(), "recommendation-test")
	if err != nil {
		f.t.Fatal(err)
	}

	objects, err := manifest.ParseString(crds)
	if err != nil {
		f.t.Fatal(err)
	}

	if err := applier.Apply(f.t.Context(), objects...); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) custom(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(2)}}}
	u.SetAPIVersion("example.com/v1")
	u.SetKind(kind)
	u.SetNamespace(f.namespace)
	u.SetName(name)

	return u
}

// TestCustomKindsThroughScale checks that a kind without a pod template is read through its scale subresource and a pod. An object
// without a selector and a kind without the subresource are reported for each target and do not affect others.
func TestCustomKindsThroughScale(t *testing.T) {
	f := newFixture(t)
	f.install()
	f.past.uses = []usageOf{
		{"Fleet", "good", 2, 0.2, 0.2, 300 * mib, 0}, {"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0},
	}

	f.deploy(2, "web")
	good := f.custom("Fleet", "good")
	bad := f.custom("Fleet", "bad")
	opaque := f.custom("Opaque", "one")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "good-1", Labels: map[string]string{"fleet": "good"}}, Spec: podSpec()}
	f.create(good, bad, opaque, pod)

	good.Object["status"] = map[string]any{"replicas": int64(2), "selector": "fleet=good"}
	if err := f.Status().Update(t.Context(), good); err != nil {
		t.Fatal(err)
	}

	rule := f.rule("custom", "Resource", "Replicas")
	rule.Spec.ResourceSelectors = append(rule.Spec.ResourceSelectors,
		analysisv1alpha1.ResourceSelector{Kind: "Fleet", APIVersion: "example.com/v1"},
		analysisv1alpha1.ResourceSelector{Kind: "Opaque", APIVersion: "example.com/v1"})
	f.create(rule)
	f.start(setup{})

	f.eventually("all targets are evaluated", func(ctx context.Context) error {
		all, err := f.all(ctx)
		if err != nil {
			return err
		}

		for name, want := range map[string]string{
			"Resource/web": "True/RecommendationReady", "Resource/good": "True/RecommendationReady", "Replicas/good": "True/RecommendationReady",
			"Resource/bad": "False/TargetUnreadable", "Resource/one": "False/TargetUnreadable",
		} {
			if got := harness.ConditionText(all[name].Status.Conditions, "Ready"); got != want {
				return fmt.Errorf("%s: %s, want %s: %s", name, got, want, all[name].Status.Description)
			}
		}

		return nil
	})

	all := f.recommendations()
	for name, says := range map[string]string{"Resource/bad": "no selector", "Resource/one": "no scale subresource"} {
		if d := all[name].Status.Description; !strings.Contains(d, says) || harness.ConditionText(all[name].Status.Conditions, "Failed") != "True/TargetUnreadable" {
			t.Errorf("%s: description %q, want %q", name, d, says)
		}
	}
}

// TestKindNotInstalled checks that a selector of a kind that the API server does not serve is reported, and that the other
// selectors are evaluated.
func TestKindNotInstalled(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	rule := f.rule("uninstalled", "Resource")
	rule.Spec.ResourceSelectors = append(rule.Spec.ResourceSelectors, analysisv1alpha1.ResourceSelector{Kind: "Nonesuch", APIVersion: "example.net/v1"})
	f.create(rule)
	f.start(setup{})

	done := f.awaitRule(rule, "SelectorFailed")
	if m := meta.FindStatusCondition(done.Status.Conditions, "Ready").Message; !strings.Contains(m, "spec.resourceSelectors[1]") || !strings.Contains(m, "Nonesuch") {
		t.Errorf("message %q, want the selector and the kind", m)
	}
	if r := f.recommendations()["Resource/web"]; harness.ConditionText(r.Status.Conditions, "Ready") != "True/RecommendationReady" {
		t.Errorf("status %+v, want it Ready", r.Status)
	}
}

// TestTargetDeletedMidway checks that a workload that is deleted during its evaluation has no Recommendation, and that the run
// completes.
func TestTargetDeletedMidway(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}, {"Deployment", "doomed", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web", "doomed")
	rule := f.rule("midway", "Resource", "Replicas")
	f.create(rule)
	f.past.before = func(ctx context.Context, _ metrics.UsageRequest) error {
		return client.IgnoreNotFound(f.Delete(ctx, f.deployment("doomed", 2)))
	}
	f.start(setup{})
	f.awaitRule(rule, "RoundCompleted")

	f.eventually("the deleted workload has no Recommendation", func(ctx context.Context) error {
		all, err := f.all(ctx)
		if err == nil && len(all) != 2 {
			err = fmt.Errorf("%d recommendations, want those of web", len(all))
		}

		return err
	})
}

// TestTerminatingNamespace checks that no Recommendation is created in a terminating namespace, and that other namespaces are
// evaluated.
func TestTerminatingNamespace(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	leaving := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "leaving-"}}
	f.create(leaving)
	there := f.deployment("web", 2)
	there.Namespace = leaving.Name
	f.create(there)

	// Without the namespace controller it remains in phase Terminating.
	if err := f.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}

	rule := f.rule("terminating", "Resource")
	rule.Spec.NamespaceSelector.MatchNames = append(rule.Spec.NamespaceSelector.MatchNames, leaving.Name)
	f.create(rule)
	f.start(setup{})
	f.awaitRule(rule, "RoundCompleted")

	if r := f.recommendations()["Resource/web"]; harness.ConditionText(r.Status.Conditions, "Ready") != "True/RecommendationReady" {
		t.Errorf("status %+v, want it Ready", r.Status)
	}

	var list analysisv1alpha1.RecommendationList
	if err := f.List(t.Context(), &list, client.InNamespace(leaving.Name)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d recommendations in a terminating namespace: %v, want none", len(list.Items), err)
	}
}

// TestSlowSource checks that a rule with a slow data source does not delay another rule, and completes.
func TestSlowSource(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	other := newFixture(t)
	other.past = f.past
	other.deploy(2, "web")
	slow := f.rule("slow", "Resource")
	quick := other.rule("quick", "Resource")
	release := make(chan struct{})

	f.past.before = func(ctx context.Context, req metrics.UsageRequest) error {
		if req.Namespaces[0] != f.namespace {
			return nil
		}

		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	f.create(slow)
	f.start(setup{})
	f.eventually("the slow rule queries its source", func(context.Context) error {
		if f.past.queryCount() == 0 {
			return errors.New("no query")
		}

		return nil
	})

	other.create(quick)
	other.awaitRule(quick, "RoundCompleted")

	if len(f.recommendations()) > 0 {
		t.Error("the slow rule has recommendations before its query has ended, want none")
	}

	close(release)
	f.awaitRule(slow, "RoundCompleted")
}

// podPages adds simulated pods to the lists of pods of a namespace, page by page.
type podPages struct {
	http.RoundTripper
	namespace string
	pods      int
	// bare reports whether a simulated pod has no controller.
	bare  func(i int) bool
	pages atomic.Int64
	whole atomic.Bool
}

func (p *podPages) name(i int) string { return fmt.Sprintf("pod-%05d", i) }

func (p *podPages) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/"+p.namespace+"/pods" || q.Get("watch") != "" {
		return p.RoundTripper.RoundTrip(r)
	}

	p.pages.Add(1)
	size, err := strconv.Atoi(q.Get("limit"))
	if err != nil || size <= 0 {
		p.whole.Store(true)
		size = p.pods
	}

	from, _ := strconv.Atoi(q.Get("continue")) // empty for the first page
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := from; i < min(from+size, p.pods); i++ {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name(i), UID: types.UID(p.name(i))}, Spec: podSpec()}
		if !p.bare(i) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "u", Controller: new(true)}}
		}

		list.Items = append(list.Items, pod)
	}

	if from+size < p.pods {
		list.Continue = strconv.Itoa(from + size)
	}

	body, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}

	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// TestTwentyThousandPods checks that a rule that selects 20,000 pods reads them page by page, and evaluates those without a
// controller.
func TestTwentyThousandPods(t *testing.T) {
	f := newFixture(t)
	f.past.uses = nil
	pages := &podPages{namespace: f.namespace, pods: 20_000, bare: func(i int) bool { return i%1000 == 0 }}
	const bare = 20
	for i := range bare { // They are read one by one later.
		f.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: pages.name(1000 * i)}, Spec: podSpec()})
	}

	rule := f.rule("pods", "Resource")
	rule.Spec.ResourceSelectors = []analysisv1alpha1.ResourceSelector{{Kind: "Pod"}}
	f.create(rule)
	f.start(setup{wrap: func(rt http.RoundTripper) http.RoundTripper {
		pages.RoundTripper = rt
		return pages
	}})

	done := f.awaitRule(rule, "RoundCompleted")
	if m := meta.FindStatusCondition(done.Status.Conditions, "Ready").Message; !strings.HasPrefix(m, fmt.Sprint(bare, " targets")) {
		t.Errorf("message %q, want %d targets", m, bare)
	}
	if n := len(f.recommendations()); n != bare {
		t.Errorf("%d recommendations, want %d", n, bare)
	}
	if pages.whole.Load() || pages.pages.Load() < 10 {
		t.Errorf("the list was read in %d pages, one of them without a bound: %t, want 10 or more, all bounded", pages.pages.Load(), pages.whole.Load())
	}
}
