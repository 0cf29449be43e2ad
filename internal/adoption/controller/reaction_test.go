// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/metrics"
	source "crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// cachedObjects reads Deployments and Recommendations as a cache does: objects are copied, lists are not.
type cachedObjects struct {
	client.Reader

	deployments     map[client.ObjectKey]*appsv1.Deployment
	recommendations []analysisv1alpha1.Recommendation
	// getErr is the result of Get; nil for the object.
	getErr error
}

func (c *cachedObjects) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if c.getErr != nil {
		return c.getErr
	}

	if d, ok := o.(*appsv1.Deployment); ok && c.deployments[key] != nil {
		c.deployments[key].DeepCopyInto(d)
		return nil
	}

	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c *cachedObjects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if recommendations, ok := list.(*analysisv1alpha1.RecommendationList); ok {
		recommendations.Items = c.recommendations
	}

	return nil
}

// add adds a Deployment that requests 1 core for the container app, and its calibrated Recommendation with adoptionType Auto.
func (c *cachedObjects) add(namespace, name string) (*appsv1.Deployment, *analysisv1alpha1.Recommendation) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1")}},
	}}
	c.deployments[client.ObjectKeyFromObject(d)] = d

	rec := analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	rec.Spec.Type, rec.Spec.AdoptionType = analysisv1alpha1.AnalysisTypeResource, analysisv1alpha1.AdoptionTypeAuto
	rec.Spec.TargetRef = corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: name}
	rec.Status.RecommendedValue = sampleValue
	rec.Status.Evidence = []analysisv1alpha1.CalibrationEvidence{{Container: "app", Target: "0.005", Achieved: "0"}}
	c.recommendations = append(c.recommendations, rec)

	return d, &c.recommendations[len(c.recommendations)-1]
}

// usage is the CPU usage of the container app of pods, in cores, as the answer to each query.
type usage struct {
	mu      sync.Mutex
	cores   map[string]float64
	err     error
	queries []string
}

func (u *usage) Selector(metric string, own ...source.Matcher) (string, error) {
	return metric + fmt.Sprint(own), nil
}

func (u *usage) Vector(_ context.Context, query string, _ time.Time) ([]metrics.Sample, error) {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.queries = append(u.queries, query)
	var out []metrics.Sample
	for pod, v := range u.cores {
		out = append(out, metrics.Sample{Labels: metrics.Labels{"pod": pod, "container": "app"}, Value: v})
	}

	return out, u.err
}

var shopWeb = targetindex.Key{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

func newTestReactor(t *testing.T) (*Reactor, *cachedObjects, *usage, *clocktesting.FakeClock) {
	t.Helper()

	objects := &cachedObjects{deployments: map[client.ObjectKey]*appsv1.Deployment{}}
	use := &usage{cores: map[string]float64{}}
	clk := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

	return NewReactor(objects, use, clk, func() bool { return false }, "crane-system", time.Minute), objects, use, clk
}

// read reads the usage of the next minute with these cores of pod web-1-a.
func (r *Reactor) readNext(t *testing.T, use *usage, clk *clocktesting.FakeClock, cores float64) {
	t.Helper()

	clk.Step(time.Minute)
	use.cores["web-1-a"] = cores
	r.read(ctrl.LoggerInto(t.Context(), logr.Discard()))
}

// TestReactionFollowsTheReplay checks that demands follow the rule of the replay: two samples of five minutes, or one that is larger by a
// quarter, and that demands end with the usage.
func TestReactionFollowsTheReplay(t *testing.T) {
	r, objects, use, clk := newTestReactor(t)
	_, rec := objects.add("shop", "web")
	for i, c := range []struct {
		cores float64
		want  units.MilliCPU // 0 for no demand
	}{
		{0.9, 0},
		{1.2, 0},
		{0.8, 0},
		{1.1, 1200},
		{0.5, 0},
		{1.3, 1300},
		{0, 0},
		{0, 0},
		{0, 0},
		{0, 0},
		{0, 0},
		{1.1, 0},
		{math.Inf(1), 0},
		{math.NaN(), 0},
		{-1, 0},
		{1.2, 1200},
	} {
		r.readNext(t, use, clk, c.cores)
		var want []adoption.Demand
		if c.want > 0 {
			want = []adoption.Demand{{Pod: "web-1-a", Container: "app", Use: c.want}}
		}

		if got := r.demandsOf(shopWeb, rec); !slices.Equal(got, want) {
			t.Errorf("minute %d, %v cores: %v, want %v", i, c.cores, got, want)
		}
		if woken := len(r.wake); woken != len(want) {
			t.Errorf("minute %d: %d targets are woken, want %d", i, woken, len(want))
		}

		for len(r.wake) > 0 {
			<-r.wake
		}
	}

	clk.Step(3 * time.Minute)

	if r.demandsOf(shopWeb, rec) != nil {
		t.Error("demandsOf returns a demand that is too old, want none")
	}
	if want := `namespace`; len(use.queries) != 16 || !strings.Contains(use.queries[0], want) || !strings.HasSuffix(use.queries[0], "> 1") {
		t.Errorf("%d queries, the first %s, want 16 of a namespace above 1 core", len(use.queries), use.queries[0])
	}
}

// TestReactionQueriesByNamespace checks that there is one query for a namespace, whatever the number of its workloads, and none without a
// workload that reacts.
func TestReactionQueriesByNamespace(t *testing.T) {
	r, objects, use, clk := newTestReactor(t)
	r.readNext(t, use, clk, 2)

	if len(use.queries) != 0 {
		t.Errorf("%d queries without a workload, want none", len(use.queries))
	}

	for i := range 100 {
		objects.add("shop", fmt.Sprintf("web%d", i))
		objects.add("bank", fmt.Sprintf("web%d", i))
	}

	r.readNext(t, use, clk, 2)

	if len(use.queries) != 2 {
		t.Errorf("%d queries for two namespaces, want 2", len(use.queries))
	}
	if n := testutil.ToFloat64(r.queries.WithLabelValues("succeeded")); n != 2 {
		t.Errorf("%v queries are counted, want 2", n)
	}
}

// TestReactionOnlyWhereAdopted checks which Recommendations and workloads react.
func TestReactionOnlyWhereAdopted(t *testing.T) {
	for name, change := range map[string]func(*appsv1.Deployment, *analysisv1alpha1.Recommendation){
		"adoption off": func(_ *appsv1.Deployment, rec *analysisv1alpha1.Recommendation) {
			rec.Spec.AdoptionType = "StatusAndAnnotation"
		},
		"another policy": func(_ *appsv1.Deployment, rec *analysisv1alpha1.Recommendation) { rec.Status.Evidence = nil },
		"no value":       func(_ *appsv1.Deployment, rec *analysisv1alpha1.Recommendation) { rec.Status.RecommendedValue = "" },
		"by eviction": func(_ *appsv1.Deployment, rec *analysisv1alpha1.Recommendation) {
			rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: analysisv1alpha1.AdoptionReachRecreate}
		},
		"foreign namespace": func(_ *appsv1.Deployment, rec *analysisv1alpha1.Recommendation) { rec.Namespace = "other" },
		"opted out": func(d *appsv1.Deployment, _ *analysisv1alpha1.Recommendation) {
			d.Labels = map[string]string{analysisv1alpha1.LabelAdoption: analysisv1alpha1.LabelAdoptionOff}
		},
		"stopped": func(d *appsv1.Deployment, _ *analysisv1alpha1.Recommendation) {
			one := units.MilliCPU(1000)
			size := adoption.Size{Containers: map[string]rightsize.Resources{"app": {CPURequest: &one}}}
			text, err := adoption.State{Phase: adoption.Stopped, Original: size, Current: size}.Encode()
			if err != nil {
				t.Fatal(err)
			}

			d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoption: text}
		},
		"no request": func(d *appsv1.Deployment, _ *analysisv1alpha1.Recommendation) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests = nil
		},
	} {
		r, objects, use, clk := newTestReactor(t)
		d, rec := objects.add("shop", "web")
		change(d, rec)
		r.readNext(t, use, clk, 5)

		if len(use.queries) != 0 || len(r.wake) != 0 || r.demandsOf(shopWeb, rec) != nil {
			t.Errorf("%s: %d queries and demands %v, want none", name, len(use.queries), r.demandsOf(shopWeb, rec))
		}
	}
}

// TestReactionRaisedRequest checks that usage below a raised request is no demand until the raise ends.
func TestReactionRaisedRequest(t *testing.T) {
	r, objects, use, clk := newTestReactor(t)
	d, rec := objects.add("shop", "web")
	one := units.MilliCPU(1000)
	size := adoption.Size{}
	size.Containers = map[string]rightsize.Resources{"app": {CPURequest: &one}}
	state := adoption.State{Phase: adoption.Resting, Original: size, Previous: size, Current: size, Raised: []adoption.RaisedRequest{
		{Pod: "web-1-a", UID: "u", Container: "app", CPU: 3000, Until: clk.Now().Add(90 * time.Second)},
	}}

	text, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}

	d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoption: text}
	r.readNext(t, use, clk, 2)

	if r.demandsOf(shopWeb, rec) != nil {
		t.Error("demandsOf returns a demand below the raised request, want none")
	}

	r.readNext(t, use, clk, 2)

	if len(r.demandsOf(shopWeb, rec)) != 1 {
		t.Errorf("demandsOf = %v after the raise, want 1 demand", r.demandsOf(shopWeb, rec))
	}
}

// TestReactionAfterFailedQuery checks that a failed query leaves no demand, and that usage before it does not count.
func TestReactionAfterFailedQuery(t *testing.T) {
	r, objects, use, clk := newTestReactor(t)
	_, rec := objects.add("shop", "web")
	r.readNext(t, use, clk, 1.1)
	use.err = errors.New("unavailable")
	saved := use.cores
	use.cores = map[string]float64{}

	for range 5 {
		clk.Step(time.Minute)
		r.read(ctrl.LoggerInto(t.Context(), logr.Discard()))
	}

	use.err = nil
	use.cores = saved
	r.readNext(t, use, clk, 1.1)

	if r.demandsOf(shopWeb, rec) != nil || testutil.ToFloat64(r.queries.WithLabelValues("failed")) != 5 {
		t.Errorf("demandsOf = %v after failed queries, want none: usage from before a failure does not count", r.demandsOf(shopWeb, rec))
	}
}

// TestReactionPaused checks that nothing is read while Crane is paused, and that usage before the pause does not count after it.
func TestReactionPaused(t *testing.T) {
	r, objects, use, clk := newTestReactor(t)
	_, rec := objects.add("shop", "web")
	r.readNext(t, use, clk, 1.1)
	paused := true
	r.paused = func() bool { return paused }
	r.readNext(t, use, clk, 5)

	if len(use.queries) != 1 || len(r.wake) != 0 || r.demandsOf(shopWeb, rec) != nil {
		t.Errorf("%d queries while paused, want the 1 from before and no demand", len(use.queries))
	}

	paused = false
	r.readNext(t, use, clk, 1.1)

	if r.demandsOf(shopWeb, rec) != nil {
		t.Errorf("demandsOf = %v after a pause, want none: usage from before it does not count", r.demandsOf(shopWeb, rec))
	}
}

// BenchmarkReaction measures one reading, which is one minute, of 10,000 containers of 5,000 workloads in 50 namespaces, a fiftieth of them
// above their request: the work of craned and that of Prometheus, whose engine runs in this process, with a scrape every 15 seconds.
func BenchmarkReaction(b *testing.B) {
	const namespaces, workloads, pods, scrapes, period = 50, 100, 2, 21, 15 * time.Second
	ctx := ctrl.LoggerInto(b.Context(), logr.Discard())

	server, err := promserver.Open(promserver.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	if err := server.Start(); err != nil {
		b.Fatal(err)
	}

	objects := &cachedObjects{deployments: map[client.ObjectKey]*appsv1.Deployment{}}
	var counters []labels.Labels
	for n := range namespaces {
		namespace := fmt.Sprintf("team-%d", n)
		for w := range workloads {
			objects.add(namespace, fmt.Sprintf("web%d", w))
			for p := range pods {
				counters = append(counters, labels.FromStrings("__name__", "container_cpu_usage_seconds_total", "namespace", namespace,
					"pod", fmt.Sprintf("web%d-7d9c5b6f4-x%d", w, p), "container", "app"))
			}
		}
	}

	now := time.Now()
	for scrape := range scrapes {
		batch := make([]promserver.Sample, len(counters))
		for i := range batch {
			cores := 0.5
			if i%50 == 0 {
				cores = 1.5
			}

			batch[i] = promserver.Sample{Labels: counters[i], Value: cores * period.Seconds() * float64(scrape)}
		}

		if err := server.Append(ctx, "cadvisor", now.Add(time.Duration(scrape+1-scrapes)*period), batch); err != nil {
			b.Fatal(err)
		}
	}

	cfg := source.DefaultConfig()
	cfg.Address = server.URL()
	prometheus, err := source.New(cfg)
	if err != nil {
		b.Fatal(err)
	}

	r := NewReactor(objects, prometheus, clocktesting.NewFakeClock(now), func() bool { return false }, "crane-system", time.Minute)
	b.ReportAllocs()

	for b.Loop() {
		r.read(ctx)
		for len(r.wake) > 0 {
			<-r.wake
		}
	}

	if len(r.observed) != len(counters)/50 {
		b.Fatalf("%d containers above their request, want %d", len(r.observed), len(counters)/50)
	}

	b.ReportMetric(testutil.ToFloat64(r.queries.WithLabelValues("succeeded"))/float64(b.N), "queries/op")
}

// TestReactor_UnreadableTarget checks that the demands stay while a target cannot be read, as opposed to one that does not exist.
func TestReactor_UnreadableTarget(t *testing.T) {
	r, objects, use, clk := newTestReactor(t)
	_, rec := objects.add("shop", "web")
	r.readNext(t, use, clk, 1.3)
	before := len(use.queries)

	objects.getErr = apierrors.NewTimeoutError("the informer is not synced", 1)
	r.readNext(t, use, clk, 0.5)
	if got := r.demandsOf(shopWeb, rec); len(got) != 1 || len(use.queries) != before {
		t.Errorf("demandsOf = %v after %d more queries, want the demand of the last reading and no query", got, len(use.queries)-before)
	}

	objects.getErr = nil
	clear(objects.deployments)
	r.readNext(t, use, clk, 0.5)
	if got := r.demandsOf(shopWeb, rec); len(got) != 0 {
		t.Errorf("demandsOf = %v for a target that does not exist, want none", got)
	}
}
