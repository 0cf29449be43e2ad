// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	prometheussource "crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/oom"
	"crane.io/crane/pkg/series"
)

const ns = "shop"

// fakeHistory is a history of constant usage of the container app of the workload web.
type fakeHistory struct {
	kind         string
	cores, bytes float64
	err          error
	queries      int
}

func (p *fakeHistory) Usage(_ context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		p.queries++
		v := p.cores
		switch req.Resource {
		case metrics.CPU:
		case metrics.Memory:
			v = p.bytes
		default:
			return
		}

		if p.err != nil {
			yield(metrics.Chunk{}, p.err)
			return
		}

		for day := series.DayOf(req.Start); day.Start().Before(req.End); day++ {
			s := series.Series{Start: day.Start(), Step: 5 * time.Minute, Values: make([]float64, 288)}
			for i := range s.Values {
				s.Values[i] = v

				if !day.Start().Add(time.Duration(i) * s.Step).Before(req.End) {
					s.Values[i] = series.Gap()
				}
			}

			key := metrics.ContainerKey{Workload: workload.Ref{Namespace: ns, Kind: p.kind, Name: "web"}, Pod: "web-1", Container: "app"}
			if !yield(metrics.Chunk{Key: key, Series: s}, nil) {
				return
			}
		}
	}
}

type fakeVPAs map[targetindex.Key]string

func (n fakeVPAs) Find(context.Context, string, time.Time) (map[targetindex.Key]string, error) {
	return n, nil
}

type fakeKills []oom.Kill

func (l *fakeKills) Kills(context.Context) ([]oom.Kill, error) { return *l, nil }

type fakeMetric struct {
	value float64
	err   error
}

func (m *fakeMetric) ReadValue(context.Context, string, string, string, time.Time) (float64, error) {
	return m.value, m.err
}

// fixture is a reconciler with a fake API server.
type fixture struct {
	*Reconciler
	t       *testing.T
	history *fakeHistory
	kills   *fakeKills
	metric  *fakeMetric
	clock   *clocktesting.FakePassiveClock
	writes  int
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{
		t: t, history: &fakeHistory{kind: "Deployment", cores: 0.2, bytes: 100 << 20}, kills: &fakeKills{}, metric: &fakeMetric{err: errors.New("not served")},
		clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&analysisv1alpha1.Recommendation{}, targetindex.Index, targetindex.IndexValues).
		WithStatusSubresource(&autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, &analysisv1alpha1.Recommendation{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				f.writes++
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				f.writes++
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				f.writes++
				return c.Delete(ctx, o, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				f.writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()

	f.Reconciler = &Reconciler{
		Client: c, Mapper: meta.NewDefaultRESTMapper(nil), Lister: &workload.Lister{Sources: workload.CachedSources(c, c, pageSize), Scales: c, Scheme: scheme},
		History: profile.Source{Capabilities: metrics.Capabilities{Usage: f.history}}, Kills: f.kills, VPAs: fakeVPAs{}, External: f.metric,
		Events: events.NewFakeRecorder(100), Metrics: NewMetrics(), Clock: f.clock, Interval: time.Minute, HistoryMaxAge: 15 * time.Minute,
	}

	return f
}

// reconcile reconciles once and returns the autoscaler.
func (f *fixture) reconcile() *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler {
	f.t.Helper()

	if _, err := f.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: ns}}); err != nil {
		f.t.Fatal(err)
	}

	e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
	if err := f.Client.Get(f.t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, e); err != nil {
		f.t.Fatal(err)
	}

	return e
}

// advance advances the clock.
func (f *fixture) advance(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

// recommendation returns the Recommendation of the autoscaler, nil for none.
func (f *fixture) recommendation() *analysisv1alpha1.Recommendation {
	f.t.Helper()

	rec := &analysisv1alpha1.Recommendation{}
	err := f.Client.Get(f.t.Context(), client.ObjectKey{Namespace: ns, Name: "evpa-web"}, rec)
	if client.IgnoreNotFound(err) != nil {
		f.t.Fatal(err)
	}
	if err != nil {
		return nil
	}

	return rec
}

func deployment(cpu, memory string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	requests := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			requests[name] = resource.MustParse(text)
		}
	}

	replicas := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", UID: "web-uid"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: requests}}}},
			},
		},
	}
}

func newAutoscaler(mode autoscalingv1alpha1.UpdateMode, edit ...func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler)) *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler {
	e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", UID: "evpa-uid"},
		Spec: autoscalingv1alpha1.EffectiveVerticalPodAutoscalerSpec{
			TargetRef:    autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"},
			UpdatePolicy: &autoscalingv1alpha1.PodUpdatePolicy{UpdateMode: &mode},
			ResourceEstimators: []autoscalingv1alpha1.ResourceEstimator{{
				Type: "Percentile", Config: map[string]string{"cpu-request-percentile": "0.99"},
			}},
		},
	}

	for _, f := range edit {
		f(e)
	}

	return e
}

func findDecision(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, name corev1.ResourceName) autoscalingv1alpha1.VerticalDecision {
	for _, d := range e.Status.Decisions {
		if d.Resource == name {
			return d
		}
	}

	return autoscalingv1alpha1.VerticalDecision{}
}

func wantCondition(t *testing.T, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, kind, reason, text string) {
	t.Helper()

	c := meta.FindStatusCondition(e.Status.Conditions, kind)
	if c == nil || c.Reason != reason || !strings.Contains(c.Message, text) {
		t.Errorf("condition %s: %+v, want %s, %q", kind, c, reason, text)
	}
}

// TestReconcile_NoChangeNoWrite checks that reconciles without changes write nothing and use the cached history.
func TestReconcile_NoChangeNoWrite(t *testing.T) {
	for _, mode := range []autoscalingv1alpha1.UpdateMode{autoscalingv1alpha1.UpdateModeOff, autoscalingv1alpha1.UpdateModeAuto} {
		f := newFixture(t, deployment("1", "512Mi"), newAutoscaler(mode))
		f.reconcile()
		f.advance(time.Second)
		f.reconcile()

		f.writes, f.history.queries = 0, 0
		for range 60 {
			f.advance(time.Minute)
			f.reconcile()
		}

		if f.writes > 0 {
			t.Errorf("%s: %d writes in an hour without a change, want none", mode, f.writes)
		}
		if asked := f.history.queries; asked < 4 || asked > 20 {
			t.Errorf("%s: %d queries of history in an hour, want 4 to 20", mode, asked)
		}
	}
}

// TestMetrics checks the gauges with gocrane's names: the recommendation and its distance from the pod template, once for each target, and
// none after the autoscaler is deleted.
func TestMetrics(t *testing.T) {
	second := newAutoscaler(autoscalingv1alpha1.UpdateModeOff)
	second.Name = "younger"
	second.UID = "other"
	second.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0))
	f := newFixture(t, deployment("1", "64Mi"), newAutoscaler(autoscalingv1alpha1.UpdateModeOff), second)
	e := f.reconcile()
	const cpu, memory = `{apiversion="apps/v1",container="app",namespace="shop",owner_kind="Deployment",owner_name="web",resource="cpu"} `,
		`{apiversion="apps/v1",container="app",namespace="shop",owner_kind="Deployment",owner_name="web",resource="memory"} `

	text, err := testutil.CollectAndFormat(f.Metrics, expfmt.TypeTextPlain, "crane_autoscaling_effective_vpa_cpu_scale_down",
		"crane_autoscaling_effective_vpa_memory_scale_up", "crane_autoscaling_effective_vpa_resource_recommendation")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"crane_autoscaling_effective_vpa_cpu_scale_down" + cpu:             "0.769",
		"crane_autoscaling_effective_vpa_memory_scale_up" + memory:         "5.3477376e+07",
		"crane_autoscaling_effective_vpa_resource_recommendation" + cpu:    "0.231",
		"crane_autoscaling_effective_vpa_resource_recommendation" + memory: "1.2058624e+08",
	}

	for series, value := range want {
		if !strings.Contains(string(text), series+value+"\n") {
			t.Errorf("series %s%s is missing, want it in\n%s", series, value, text)
		}
	}

	if n := testutil.CollectAndCount(f.Metrics); n != len(want) {
		t.Errorf("%d series, want %d:\n%s", n, len(want), text)
	}

	for _, o := range []client.Object{e, second} {
		if err := f.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: ns}}); err != nil {
		t.Fatal(err)
	}

	if n := testutil.CollectAndCount(f.Metrics); n != 0 {
		t.Errorf("%d series after the deletion, want none", n)
	}
}

// TestModes checks that each mode except Off writes a Recommendation with its reach, and that Off deletes it.
func TestModes(t *testing.T) {
	for mode, reach := range map[autoscalingv1alpha1.UpdateMode]analysisv1alpha1.AdoptionReach{
		autoscalingv1alpha1.UpdateModeInitial: analysisv1alpha1.AdoptionReachNewPods, autoscalingv1alpha1.UpdateModeRecreate: analysisv1alpha1.AdoptionReachRecreate,
		autoscalingv1alpha1.UpdateModeInPlace: analysisv1alpha1.AdoptionReachInPlace, autoscalingv1alpha1.UpdateModeAuto: analysisv1alpha1.AdoptionReachInPlaceOrRecreate,
	} {
		three := int32(3)
		f := newFixture(t, deployment("1", "512Mi"), newAutoscaler(mode, func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) { e.Spec.UpdatePolicy.MinReplicas = &three }))
		f.reconcile()

		rec := f.recommendation()
		if rec == nil || rec.Spec.Adoption.Reach != reach || *rec.Spec.Adoption.MinReplicas != 3 || rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeAuto ||
			!strings.Contains(rec.Status.RecommendedValue, "cpu: 23") || rec.Spec.TargetRef.APIVersion != "apps/v1" {
			t.Fatalf("%s: Recommendation %+v, want adoption type Auto with reach %s and the requests", mode, rec, reach)
		}

		e := f.reconcile()
		off := autoscalingv1alpha1.UpdateModeOff

		e.Spec.UpdatePolicy.UpdateMode = &off
		if err := f.Client.Update(t.Context(), e); err != nil {
			t.Fatal(err)
		}

		f.reconcile()
		if rec := f.recommendation(); rec != nil {
			t.Errorf("%s, then Off: Recommendation %+v, want none", mode, rec)
		}
	}
}

// TestModes_RequestOfALimit checks that the request that pods have because of a limit is not lowered where lowering is off, and that it is
// the current request of the decision.
func TestModes_RequestOfALimit(t *testing.T) {
	d := deployment("", "512Mi")
	d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	off := autoscalingv1alpha1.ScaleModeOff
	f := newFixture(t, d, newAutoscaler(autoscalingv1alpha1.UpdateModeAuto, func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		e.Spec.ResourcePolicy = &autoscalingv1alpha1.PodResourcePolicy{ContainerPolicies: []autoscalingv1alpha1.ContainerResourcePolicy{{
			ContainerName: "*", ScaleDownPolicy: &autoscalingv1alpha1.ContainerScalingPolicy{ScaleMode: &off},
		}}}
	}))

	got := findDecision(f.reconcile(), corev1.ResourceCPU)
	if got.Action == autoscalingv1alpha1.VerticalActionRaise || got.Action == autoscalingv1alpha1.VerticalActionLower {
		t.Errorf("decision with lowering off %+v, want neither a raise nor a lowering of the 2 cores of the pods", got)
	}

	rec := f.recommendation()
	if rec != nil && !strings.Contains(rec.Status.RecommendedValue, `cpu: "2"`) {
		t.Errorf("Recommendation with lowering off: %s, want the 2 cores of the pods", rec.Status.RecommendedValue)
	}
}

// TestUnknownMode checks that an unknown mode is reported and nothing is applied.
func TestUnknownMode(t *testing.T) {
	f := newFixture(t, deployment("1", "512Mi"), newAutoscaler("InPlaceOrRecreate"))
	e := f.reconcile()
	wantCondition(t, e, "Ready", "UnknownUpdateMode", `"InPlaceOrRecreate" is not known`)

	if f.recommendation() != nil || e.Status.Recommendation == nil {
		t.Errorf("Recommendation %+v, status %+v, want no Recommendation and a result in the status", f.recommendation(), e.Status)
	}
}

// TestSourceFails checks that a failing source keeps the last decision and recommendation, and sets conditions.
func TestSourceFails(t *testing.T) {
	f := newFixture(t, deployment("1", "512Mi"), newAutoscaler(autoscalingv1alpha1.UpdateModeAuto))
	before := f.reconcile()
	value := f.recommendation().Status.RecommendedValue
	f.history.err = &prometheussource.Error{Kind: prometheussource.Unreachable, URL: "http://10.1.2.3:9090", Err: errors.New("connection refused")}
	f.advance(time.Hour)
	e := f.reconcile()
	wantCondition(t, e, "Estimating", "EstimatorFailed", "Percentile: Prometheus cannot be reached")
	wantCondition(t, e, "Ready", "NoEstimate", "Prometheus cannot be reached")

	if strings.Contains(fmt.Sprint(e.Status), "10.1.2.3") {
		t.Errorf("the status shows the address of Prometheus, want none: %+v", e.Status)
	}
	if fmt.Sprint(e.Status.Recommendation) != fmt.Sprint(before.Status.Recommendation) || len(e.Status.ResourceEstimators) != 1 {
		t.Errorf("status %+v, want the result of before: %+v", e.Status, before.Status)
	}

	rec := f.recommendation()
	if rec == nil || rec.Status.RecommendedValue != value || !meta.IsStatusConditionTrue(rec.Status.Conditions, analysisv1alpha1.ConditionFailed) {
		t.Errorf("Recommendation %+v, want the value of before and condition Failed", rec)
	}

	f.history.err = nil
	e = f.reconcile()
	wantCondition(t, e, "Estimating", "AllAnswer", "")

	if rec := f.recommendation(); meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionFailed) != nil || rec.Status.RecommendedValue != value {
		t.Errorf("Recommendation %+v, want the value of before and no condition Failed", rec)
	}
}

// TestExternal checks estimates from external metrics: NaN, 0 and errors are failures.
func TestExternal(t *testing.T) {
	f := newFixture(t, deployment("1", "512Mi"), newAutoscaler(autoscalingv1alpha1.UpdateModeOff, func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		e.Spec.ResourceEstimators = append(e.Spec.ResourceEstimators, autoscalingv1alpha1.ResourceEstimator{
			Type: "External", Priority: 1, Config: map[string]string{"cpu-metric-name": "need", "margin-fraction": "0.5", "metric-selector": "a=b"},
		})
	}))

	for name, c := range map[string]struct {
		metric fakeMetric
		wins   string
		failed bool
	}{
		"a value": {fakeMetric{value: 2}, "External", false}, "NaN": {fakeMetric{value: math.NaN()}, "Percentile", true}, "zero": {fakeMetric{}, "Percentile", true},
		"negative": {fakeMetric{value: -1}, "Percentile", true}, "infinite": {fakeMetric{value: math.Inf(1)}, "Percentile", true},
		"an error": {fakeMetric{err: errors.New("not found")}, "Percentile", true},
	} {
		*f.metric = c.metric
		e := f.reconcile()
		d := findDecision(e, corev1.ResourceCPU)
		if d.Estimator != c.wins || meta.IsStatusConditionFalse(e.Status.Conditions, "Estimating") != c.failed {
			t.Errorf("%s: decision %+v, conditions %+v, want estimator %s and a failure: %t", name, d, e.Status.Conditions, c.wins, c.failed)
		}
		if c.wins == "Percentile" && d.Action != autoscalingv1alpha1.VerticalActionHold {
			t.Errorf("%s: decision %+v, want Hold", name, d)
		}

		if c.wins == "External" && e.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().MilliValue() != 3000 {
			t.Errorf("%s: recommendation %+v, want 3 cores", name, e.Status.Recommendation)
		}
	}
}

// TestSingleValue checks that several values, an outdated one, and none are errors.
func TestSingleValue(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(ago time.Duration) externalv1beta1.ExternalMetricValue {
		return externalv1beta1.ExternalMetricValue{Value: resource.MustParse("1500m"), Timestamp: metav1.NewTime(now.Add(-ago))}
	}
	for name, c := range map[string]struct {
		list []externalv1beta1.ExternalMetricValue
		want float64
	}{
		"one": {[]externalv1beta1.ExternalMetricValue{at(time.Minute)}, 1.5}, "none": {nil, 0}, "two": {[]externalv1beta1.ExternalMetricValue{at(0), at(0)}, 0},
		"old": {[]externalv1beta1.ExternalMetricValue{at(time.Hour)}, 0},
	} {
		if got, err := singleValue(c.list, now); got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s: singleValue = %v, error %v, want %v", name, got, err, c.want)
		}
	}
}

// TestReconcile_KillRaisesMemory checks that an OOM kill raises the request at once, and that nothing is lowered in the window after it.
func TestReconcile_KillRaisesMemory(t *testing.T) {
	f := newFixture(t, deployment("230m", "120Mi"), newAutoscaler(autoscalingv1alpha1.UpdateModeAuto))
	f.reconcile()
	*f.kills = fakeKills{{
		Namespace: ns, Pod: "web-1", Container: "app", Memory: 120 << 20, At: f.clock.Now(), Owner: oom.Owner{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
	}}
	f.advance(time.Minute)

	e := f.reconcile()
	d := findDecision(e, corev1.ResourceMemory)
	if d.Estimator != "OOM" || d.Action != autoscalingv1alpha1.VerticalActionRaise || d.Request.Value() != 253<<20 || d.RaisedAt == nil {
		t.Fatalf("decision %+v, want a raise to 253Mi by OOM", d)
	}

	if !strings.Contains(f.recommendation().Status.RecommendedValue, "253Mi") {
		t.Errorf("recommended value %s, want 253Mi", f.recommendation().Status.RecommendedValue)
	}

	*f.kills = nil
	f.advance(time.Hour)

	if d := findDecision(f.reconcile(), corev1.ResourceMemory); d.Request.Value() != 253<<20 {
		t.Errorf("decision %+v, want the 253Mi of before", d)
	}
}

// TestReconcile_ResourceNoLongerControlled checks that a resource that is controlled no longer returns to the request of the template.
func TestReconcile_ResourceNoLongerControlled(t *testing.T) {
	f := newFixture(t, deployment("1", "64Mi"), newAutoscaler(autoscalingv1alpha1.UpdateModeAuto))
	f.reconcile()

	if !strings.Contains(f.recommendation().Status.RecommendedValue, "memory: 11") {
		t.Fatalf("recommended value %s, want memory from 11", f.recommendation().Status.RecommendedValue)
	}

	e := f.reconcile()
	e.Spec.ResourcePolicy = &autoscalingv1alpha1.PodResourcePolicy{ContainerPolicies: []autoscalingv1alpha1.ContainerResourcePolicy{{
		ContainerName: "*", ControlledResources: []corev1.ResourceName{corev1.ResourceCPU},
	}}}

	if err := f.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	f.reconcile()
	if !strings.Contains(f.recommendation().Status.RecommendedValue, "memory: 64Mi") {
		t.Errorf("recommended value %s, want the original memory 64Mi", f.recommendation().Status.RecommendedValue)
	}
}

// unservedReader answers reads of one API version like an API server that does not serve it.
type unservedReader struct {
	client.Reader
	version schema.GroupVersion
}

func (r unservedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if o.GetObjectKind().GroupVersionKind().GroupVersion() == r.version {
		resource := schema.GroupResource{Group: r.version.Group, Resource: "games"}
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", resource, key.Name, "404 page not found", 0, true)
	}

	return r.Reader.Get(ctx, key, o, opts...)
}

// TestTargetVersionIsNoLongerServed checks that a target is read in a served version when that of its reference is gone, and that the
// Recommendation stays while no version is served.
func TestTargetVersionIsNoLongerServed(t *testing.T) {
	game := func(version string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "app", "resources": map[string]any{"requests": map[string]any{"cpu": "1", "memory": "512Mi"}}}},
		}}}}}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: version, Kind: "Game"})
		o.SetNamespace(ns)
		o.SetName("web")

		return o
	}

	old := game("v1")
	served := game("v2")
	f := newFixture(t, old, newAutoscaler(autoscalingv1alpha1.UpdateModeAuto, func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		e.Spec.TargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "example.org/v1", Kind: "Game", Name: "web"}
	}))
	f.Lister.Scheme = clientgoscheme.Scheme // The fake client adds unstructured kinds to its own.
	f.history.kind = served.GroupVersionKind().Kind
	f.reconcile()

	before := f.recommendation()
	if before == nil {
		t.Fatal("reconcile made no Recommendation, want one")
	}

	f.Lister.Sources = func(schema.GroupVersionKind) workload.Source {
		return workload.Source{Reader: unservedReader{f.Client, old.GroupVersionKind().GroupVersion()}}
	}
	e := f.reconcile()
	wantCondition(t, e, "Ready", "TargetUnreadable", "serves no kind Game of example.org/v1")

	if got := f.recommendation(); got == nil || got.UID != before.UID {
		t.Errorf("no version is served: Recommendation %+v, want that of before", got)
	}
	if err := f.Client.Create(t.Context(), served); err != nil {
		t.Fatal(err)
	}

	f.Mapper = failingMapper{f.Mapper}
	wantCondition(t, f.reconcile(), "Ready", "TargetUnreadable", "finding the served version of Game.example.org: the API server is overloaded")

	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{served.GroupVersionKind().GroupVersion()})
	mapper.Add(served.GroupVersionKind(), meta.RESTScopeNamespace)

	f.Mapper = mapper
	e = f.reconcile()
	if ready := meta.FindStatusCondition(e.Status.Conditions, "Ready"); ready.Reason == "TargetUnreadable" || f.recommendation() == nil {
		t.Errorf("v2 is served: condition %+v, want a target and a Recommendation", ready)
	}
}

// TestReconcile_TargetProblems checks the message of each problem with a target, and that nothing is applied.
func TestReconcile_TargetProblems(t *testing.T) {
	for name, c := range map[string]struct {
		target       autoscalingv2.CrossVersionObjectReference
		reason, text string
	}{
		"not there":       {autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "db"}, "TargetNotFound", "Deployment db does not exist"},
		"no version":      {autoscalingv2.CrossVersionObjectReference{Kind: "Game", Name: "x"}, "TargetUnreadable", "needs an apiVersion"},
		"part of a whole": {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1"}, "TargetUnreadable", "belongs to another object"},
	} {
		controller := true
		part := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "web-1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web-uid", Controller: &controller}},
		}, Spec: appsv1.ReplicaSetSpec{Template: deployment("1", "").Spec.Template}}
		f := newFixture(t, deployment("1", "512Mi"), part, newAutoscaler(autoscalingv1alpha1.UpdateModeAuto, func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
			e.Spec.TargetRef = c.target
		}))
		e := f.reconcile()
		wantCondition(t, e, "Ready", c.reason, c.text)

		if f.recommendation() != nil {
			t.Errorf("%s: Recommendation %+v, want none", name, f.recommendation())
		}
	}
}

// TestReconcile_RemovesFinalizer checks that gocrane's finalizer is removed from a deleted autoscaler.
func TestReconcile_RemovesFinalizer(t *testing.T) {
	e := newAutoscaler(autoscalingv1alpha1.UpdateModeOff)
	e.Finalizers = []string{autoscalingv1alpha1.Finalizer}
	f := newFixture(t, deployment("1", "512Mi"), e)
	if err := f.Client.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	if _, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: ns}}); err != nil {
		t.Fatal(err)
	}

	if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(e), e); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("reading the deleted autoscaler returned error %v, want not found", err)
	}
}

// failingMapper is a mapper whose discovery fails.
type failingMapper struct{ meta.RESTMapper }

func (failingMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, apierrors.NewServiceUnavailable("the API server is overloaded")
}
