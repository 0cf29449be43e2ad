// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	prometheussource "crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/forecast"
)

// fakePredictor has one answer for every series.
type fakePredictor struct {
	status predictor.Status
	// pending is the number of the first metrics that are pending, whatever status is.
	pending   int
	refuse    error
	series    int
	step      time.Duration
	reason    string
	now       func() time.Time
	forecasts int
	callers   map[string]int
}

func (f *fakePredictor) Set(caller string, requests []predictor.Request) []predictor.RequestResult {
	f.callers[caller] = len(requests)
	out := make([]predictor.RequestResult, len(requests))
	for i := range out {
		out[i] = predictor.RequestResult{Key: predictor.Key{byte(i)}, Err: f.refuse}
	}

	return out
}

func (f *fakePredictor) Advise(predictor.Key, string, string, forecast.Forecast) (predictor.Advice, bool) {
	return predictor.Advice{}, false
}

func (f *fakePredictor) Forget(caller string) { delete(f.callers, caller) }

func (f *fakePredictor) Status(key predictor.Key) predictor.Status {
	if int(key[0]) < f.pending {
		return predictor.Status{State: predictor.Pending}
	}

	return f.status
}

func (f *fakePredictor) Accuracy(predictor.Key) predictor.Accuracy {
	return predictor.Accuracy{Samples: 1, WAPE: 0.1, Coverage: 0.95, Skill: 0.5}
}

func (f *fakePredictor) Forecast(_ predictor.Key, horizon time.Duration) ([]predictor.SeriesForecast, error) {
	f.forecasts++
	var out []predictor.SeriesForecast
	for i := range f.series {
		one := predictor.SeriesForecast{LastSample: f.status.LastSample}
		if f.series > 1 {
			one.Labels = map[string]string{"pod": string(rune('a' + i))}
		}

		one.Forecast = forecast.Forecast{Start: f.status.LastSample.Add(f.step), Step: f.step, Model: "auto", Period: 24 * time.Hour, Periods: 13, Reason: f.reason}
		for at := one.Start; !at.After(f.now().Add(horizon)); at = at.Add(f.step) {
			one.Values = append(one.Values, forecast.Constant(float64(i)+0.123456))
		}
		out = append(out, one)
	}

	return out, nil
}

// fixture is a reconciler on a fake API server.
type fixture struct {
	*Reconciler
	predictor *fakePredictor
	clock     *testingclock.FakeClock
	tsp       *predictionv1alpha1.TimeSeriesPrediction
	writes    int
	version   string
}

func newBench(t *testing.T) *fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := predictionv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	cpu := corev1.ResourceCPU
	tsp := target("Deployment", "", "web")
	tsp.Generation, tsp.Spec.PredictionWindowSeconds = 1, 3600
	tsp.Spec.PredictionMetrics = []predictionv1alpha1.PredictionMetric{{
		ResourceIdentifier: "cpu", Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: &cpu,
	}}
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	p := &fakePredictor{
		status: predictor.Status{State: predictor.Pending}, series: 1, step: time.Minute, now: clock.Now, callers: map[string]int{},
	}

	return &fixture{
		Reconciler: &Reconciler{
			Client:    fake.NewClientBuilder().WithScheme(scheme).WithObjects(tsp).WithStatusSubresource(tsp).Build(),
			Predictor: p, Selector: testSelector(t), Metrics: NewMetrics(p.Accuracy, "crane-system"), Frequency: 30 * time.Second, Clock: clock,
		},
		predictor: p, clock: clock, tsp: tsp,
	}
}

// reconcile reconciles once and returns the object.
func (b *fixture) reconcile(t *testing.T) (*predictionv1alpha1.TimeSeriesPrediction, ctrl.Result) {
	t.Helper()

	key := client.ObjectKeyFromObject(b.tsp)
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}

	out := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := b.Client.Get(t.Context(), key, out); err != nil {
		t.Fatal(err)
	}

	if out.ResourceVersion != b.version {
		b.writes++
		b.version = out.ResourceVersion
	}

	return out, result
}

func (b *fixture) ready() {
	b.predictor.status = predictor.Status{State: predictor.Ready, Series: 1, LastSample: b.clock.Now().Add(-time.Minute)}
}

func texts(tsp *predictionv1alpha1.TimeSeriesPrediction, kind string) string {
	c := meta.FindStatusCondition(tsp.Status.Conditions, kind)
	if c == nil {
		return "absent"
	}

	return string(c.Status) + "/" + c.Reason + ": " + c.Message
}

// TestReconcile_Lifecycle covers pending, ready, one write per window, stale, recovery and deletion.
func TestReconcile_Lifecycle(t *testing.T) {
	b := newBench(t)
	tsp, result := b.reconcile(t)
	if got := texts(tsp, "Ready"); got != "absent" || result.RequeueAfter != time.Second {
		t.Errorf("%s, again after %s; want no status of a history that may be read soon", got, result.RequeueAfter)
	}

	b.clock.Step(firstWriteAfter)
	tsp, result = b.reconcile(t)
	if got := texts(tsp, "Ready"); got != "False/PredictFailed: cpu: the history is being read" || result.RequeueAfter != firstWriteAfter {
		t.Errorf("Ready = %s, again after %s, want False while the history is read, and again after firstWriteAfter", got, result.RequeueAfter)
	}

	b.clock.Step(8*time.Second - firstWriteAfter)
	if _, result = b.reconcile(t); result.RequeueAfter != 8*time.Second {
		t.Errorf("again after %s, want twice as late", result.RequeueAfter)
	}

	b.ready()
	tsp, result = b.reconcile(t)
	if got := texts(tsp, "Ready"); got != "True/PredictSucceed: cpu: auto; 13 periods of 1d" || result.RequeueAfter != 30*time.Second {
		t.Errorf("Ready = %s, again after %s, want True, and again after 30 s", got, result.RequeueAfter)
	}

	samples := tsp.Status.PredictionMetrics[0].Prediction[0].Samples
	if len(samples) != 121 || samples[0] != (predictionv1alpha1.Sample{Value: "0.12346", Timestamp: b.clock.Now().Unix()}) {
		t.Errorf("%d samples, the first %+v, want 121, the first now with 0.12346", len(samples), samples[0])
	}

	b.writes = 0
	for range 8 * 120 {
		b.clock.Step(30 * time.Second)
		b.predictor.status.LastSample = b.clock.Now().Add(-time.Minute)

		tsp, _ = b.reconcile(t)
		if got := texts(tsp, "Ready"); !strings.HasPrefix(got, "True") {
			t.Fatalf("Ready after new samples = %s, want True", got)
		}
	}

	if b.writes < 7 || b.writes > 9 || b.predictor.forecasts != b.writes+1 {
		t.Errorf("%d writes and %d forecasts in 8 windows, want about one write per window and one forecast more", b.writes, b.predictor.forecasts)
	}

	checkStale(t, b)
	b.clock.Step(time.Minute)

	if err := b.Client.Delete(t.Context(), b.tsp); err != nil {
		t.Fatal(err)
	}

	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.tsp)}); err != nil {
		t.Fatal(err)
	}

	if len(b.predictor.callers) != 0 || len(b.Metrics.objects) != 0 {
		t.Errorf("callers %v and metrics %v remain, want none", b.predictor.callers, b.Metrics.objects)
	}
}

// TestWritesWhileHistoriesAreRead checks that the status of an object with many metrics is written at growing intervals while they become known
// one after another, and at once when all are known or the spec changes.
func TestWritesWhileHistoriesAreRead(t *testing.T) {
	b := newBench(t)
	const many = 100
	for i := range many {
		m := b.tsp.Spec.PredictionMetrics[0]
		m.ResourceIdentifier = fmt.Sprint("m", i)
		b.tsp.Spec.PredictionMetrics = append(b.tsp.Spec.PredictionMetrics, m)
	}

	b.tsp.Spec.PredictionMetrics = b.tsp.Spec.PredictionMetrics[1:]
	write := func() {
		t.Helper()

		stored := &predictionv1alpha1.TimeSeriesPrediction{}
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(b.tsp), stored); err != nil {
			t.Fatal(err)
		}

		stored.Spec, stored.Generation = b.tsp.Spec, b.tsp.Generation
		if err := b.Client.Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}

		b.version = stored.ResourceVersion
	}

	write()
	b.predictor.status = predictor.Status{State: predictor.Empty}
	for b.predictor.pending = many; b.predictor.pending > 0; b.predictor.pending-- {
		if _, result := b.reconcile(t); result.RequeueAfter > maxWriteInterval {
			t.Fatalf("the next reconciliation follows after %s, want at most maxWriteInterval", result.RequeueAfter)
		}

		b.clock.Step(5 * time.Second)
	}

	// At 5, 10, 15, 25, 45, 85, 165 and 325 s.
	if b.writes != 8 {
		t.Errorf("%d writes in %d changes, want 8", b.writes, many)
	}
	if out, _ := b.reconcile(t); b.writes != 9 || strings.Contains(texts(out, predictionv1alpha1.ConditionReady), "being read") {
		t.Errorf("%d writes when all metrics are known, want 9: %s", b.writes, texts(out, predictionv1alpha1.ConditionReady))
	}

	b.predictor.pending = 1
	b.reconcile(t)

	if b.writes != 9 {
		t.Errorf("%d writes, want 9: a pending metric is no reason for one", b.writes)
	}

	b.tsp.Generation++
	write()

	if out, _ := b.reconcile(t); out.Status.Conditions[0].ObservedGeneration != b.tsp.Generation || b.writes != 10 {
		t.Errorf("%d writes after a change of the spec, want 10", b.writes)
	}
}

// TestNewWorkloads checks that the forecast of a new workload is renewed as its history doubles, not each minute.
func TestNewWorkloads(t *testing.T) {
	b := newBench(t)
	b.ready()

	b.predictor.status.FirstSample = b.clock.Now().Add(-2 * time.Minute)
	b.tsp.Spec.PredictionWindowSeconds = 86400
	if err := b.Client.Update(t.Context(), b.tsp); err != nil {
		t.Fatal(err)
	}

	for range 24 * 12 {
		b.predictor.status.LastSample = b.clock.Now().Add(-time.Minute)
		b.reconcile(t)
		b.clock.Step(5 * time.Minute)
	}

	if b.predictor.forecasts < 7 || b.predictor.forecasts > 12 {
		t.Errorf("%d forecasts on the first day, want 7 to 12", b.predictor.forecasts)
	}
}

// checkStale expects one write when samples stop, even if the error text changes, and one when they resume.
func checkStale(t *testing.T, b *fixture) {
	t.Helper()

	b.writes = 0
	b.predictor.status.Stale = true
	b.predictor.status.Err = errors.New("connection refused")

	last := b.predictor.status.LastSample.UTC().Format(time.RFC3339)
	tsp, _ := b.reconcile(t)
	if got, want := texts(tsp, "Stale"), "True/SourceFailed: cpu: no new samples since "+last+"; the forecast starts there: connection refused"; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	since := meta.FindStatusCondition(tsp.Status.Conditions, "Stale").LastTransitionTime
	b.clock.Step(time.Minute)

	b.predictor.status.Err = errors.New("i/o timeout")
	tsp, _ = b.reconcile(t)
	if b.writes != 1 || !meta.FindStatusCondition(tsp.Status.Conditions, "Stale").LastTransitionTime.Equal(&since) {
		t.Errorf("%d writes of one transition, want 1 and the time of the transition kept", b.writes)
	}

	b.predictor.status.Stale = false
	b.predictor.status.Err = nil
	if tsp, _ = b.reconcile(t); texts(tsp, "Stale") != "False/UpToDate: " {
		t.Errorf("Stale = %s, want False/UpToDate", texts(tsp, "Stale"))
	}
}

// TestRestartKeepsWhatIsWritten checks that a valid forecast stays ready while the history is read again.
func TestRestartKeepsWhatIsWritten(t *testing.T) {
	b := newBench(t)
	b.ready()
	b.reconcile(t)

	for _, status := range []predictor.Status{{State: predictor.Pending}, {State: predictor.Failed, Err: errors.New("no route")}} {
		b.predictor.status = status
		b.writes = 0
		tsp, _ := b.reconcile(t)
		if got := texts(tsp, "Ready"); !strings.HasPrefix(got, "True") || b.writes != 0 {
			t.Errorf("%s: Ready = %s after %d writes, want True and no write", status.State, got, b.writes)
		}
	}

	b.clock.Step(61 * time.Minute)
	tsp, _ := b.reconcile(t)
	if got := texts(tsp, "Ready"); got != "False/PredictFailed: cpu: reading the history failed: no route" {
		t.Errorf("Ready = %s, want False with the error of the read", got)
	}

	b.predictor.status.Err = fmt.Errorf("after 5 attempts: %w", &prometheussource.Error{
		Kind: prometheussource.Refused, URL: "http://prometheus.monitoring:9090/api/v1/query_range", Status: 400, Message: "parse error",
	})

	tsp, _ = b.reconcile(t)
	if got := texts(tsp, "Ready"); got != "False/PredictFailed: cpu: reading the history failed: Prometheus refuses the query: status 400: parse error" {
		t.Errorf("Ready = %s, want the error of Prometheus without its address", got)
	}
}

func TestReconcile_States(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		want   string
	}{
		"no series": {func(b *fixture) { b.predictor.status.State = predictor.Empty }, "False/PredictFailed: cpu: no series for cpu of shop/Deployment/web: it does not exist, or no series of its pods or of their owners is in the history"},
		"refused":   {func(b *fixture) { b.predictor.refuse = errors.New("the limit of 2 series is reached") }, "False/PredictFailed: cpu: the limit of 2 series is reached"},
		"fell back": {func(b *fixture) {
			b.ready()
			b.predictor.reason = "dsp fell back to percentile: history 3h of 48h needed"
		}, "True/PredictSucceed: cpu: dsp fell back to percentile: history 3h of 48h needed"},
		"two series":  {func(b *fixture) { b.ready(); b.predictor.series = 2 }, "True/PredictSucceed: cpu: auto; 13 periods of 1d (2 series)"},
		"some beyond": {func(b *fixture) { b.ready(); b.predictor.status.Dropped = 7 }, "True/PredictSucceed: cpu: auto; 13 periods of 1d; 7 more series are left out: the maximum is 1 per metric"},
	} {
		b := newBench(t)
		c.change(b)

		tsp, _ := b.reconcile(t)
		if got := texts(tsp, "Ready"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestLongQueryInReason checks that a long query does not displace the advice that follows it, and that an object with many stays small.
func TestLongQueryInReason(t *testing.T) {
	tsp := target("Deployment", "", "web")
	q := predictor.Query{Expression: strings.Repeat("orders+", 1000) + "orders"}

	got := sentence(Isolation{Enabled: true, Label: "ns"}.emptyReason(tsp, q))
	if len(got) > 600 || !strings.Contains(got, "--tenant-unrestricted-namespaces") {
		t.Errorf("the reason has %d bytes: %s, want at most 600 and the flag", len(got), got)
	}

	q = predictor.Query{Resource: "cpu", Target: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: strings.Repeat("x", 253)}}
	if got := (Isolation{}).emptyReason(tsp, q); len(got) > 300 || !strings.HasSuffix(got, "is in the history") {
		t.Errorf("the reason has %d bytes: %s, want at most 300", len(got), got)
	}
}

// TestEmptyUnderIsolation checks that the status of a query without series names the restriction of tenants and how to lift it, and does so
// only where the query is restricted.
func TestEmptyUnderIsolation(t *testing.T) {
	const none = "False/PredictFailed: cpu: no series for query orders"
	expression := predictionv1alpha1.PredictionMetric{
		ResourceIdentifier: "cpu", Type: predictionv1alpha1.ExpressionQueryMetricType,
		ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "orders"}, Algorithm: predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypeDSP},
	}

	for name, c := range map[string]struct {
		isolation Isolation
		change    func(*predictionv1alpha1.TimeSeriesPrediction)
		want      []string
	}{
		"off":     {Isolation{}, nil, nil},
		"on":      {Isolation{Enabled: true, Label: "ns"}, nil, []string{`only series with ns="shop" are read`, "--tenant-unrestricted-namespaces"}},
		"honored": {Isolation{Enabled: true, Label: "ns", ClusterScope: true}, nil, []string{`only series with ns="shop" are read`, "spec.queryScope: Cluster", "query-cluster"}},
		"lifted": {Isolation{Enabled: true, Label: "ns", ClusterScope: true}, func(o *predictionv1alpha1.TimeSeriesPrediction) {
			o.Spec.QueryScope = predictionv1alpha1.QueryScopeCluster
		}, nil},
		"unrestricted": {Isolation{Enabled: true, Label: "ns", Unrestricted: []string{"shop"}}, nil, nil},
	} {
		b := newBench(t)
		b.predictor.status.State = predictor.Empty
		b.Reconciler.Isolation = c.isolation
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(b.tsp), b.tsp); err != nil {
			t.Fatal(err)
		}

		b.tsp.Spec.PredictionMetrics = []predictionv1alpha1.PredictionMetric{expression}
		if c.change != nil {
			c.change(b.tsp)
		}

		if err := b.Client.Update(t.Context(), b.tsp); err != nil {
			t.Fatal(err)
		}

		tsp, _ := b.reconcile(t)
		got := texts(tsp, "Ready")
		if len(c.want) == 0 && got != none {
			t.Errorf("%s: Ready = %s, want %s", name, got, none)
		}

		for _, want := range c.want {
			if !strings.HasPrefix(got, none+`{ns="shop"}: `) || !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
}

// TestStatusIsBounded requests a week at one second, which would be 600,000 samples.
func TestStatusIsBounded(t *testing.T) {
	b := newBench(t)
	b.tsp.Spec.PredictionWindowSeconds = 7 * 86400
	now := b.clock.Now()
	b.predictor.status = predictor.Status{LastSample: now.Add(-time.Minute)}

	b.predictor.step = 15 * time.Second
	all, err := b.predictor.Forecast(predictor.Key{}, 14*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	d := newDecision(b.tsp, now)
	m := d.withNewForecast(metricState{}, all, nil, maxSamples)
	samples := m.Prediction[0].Samples
	if len(samples) > maxSamples || len(samples) < maxSamples/4 || !m.Ready || samples[len(samples)-1].Timestamp < now.Unix()+14*86400-15 {
		t.Errorf("%d samples to %d, ready %v, want a quarter of maxSamples or more up to the end of 14 days, ready", len(samples), samples[len(samples)-1].Timestamp-now.Unix(), m.Ready)
	}
}

// TestMetrics_SameTarget checks that two objects about the same target do not break the metrics page.
func TestMetrics_SameTarget(t *testing.T) {
	b := newBench(t)
	b.ready()
	tsp, _ := b.reconcile(t)
	twin := tsp.DeepCopy()
	twin.Name = "twin"
	seen := []metricState{{identifier: "cpu"}}
	b.Metrics.observe(twin, twin.Status, seen, b.clock.Now())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(b.Metrics)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	count := map[string]int{}
	for _, f := range families {
		count[f.GetName()] = len(f.GetMetric())
	}

	if count["crane_prediction_tsp"] != 1 || count["crane_prediction_wape_ratio"] != 2 {
		t.Errorf("Collect has series %v, want 1 of crane_prediction_tsp and 2 of crane_prediction_wape_ratio", count)
	}
}

func TestPlanNodes(t *testing.T) {
	cnp := &predictionv1alpha1.ClusterNodePrediction{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "all", UID: "u"}}
	if p := planNodes(cnp, []string{"a"}, 9, nil); p.desired != 1 || len(p.create) != 0 {
		t.Errorf("planNodes without a template = %+v, want nothing created", p)
	}

	cnp.Spec.Template = &predictionv1alpha1.TimeSeriesPredictionTemplate{}
	cnp.Spec.Template.Spec.PredictionWindowSeconds = 3600
	same := newPrediction(cnp, "a")
	other := newPrediction(cnp, "b")
	gone := newPrediction(cnp, "c")
	other.Spec.PredictionWindowSeconds = 600

	p := planNodes(cnp, []string{"a", "b", "d"}, 9, []predictionv1alpha1.TimeSeriesPrediction{*same, *other, *gone})
	if p.desired != 3 || p.unchanged != 1 || len(p.create) != 1 || p.create[0].Name != "all-d" || len(p.update) != 1 ||
		p.update[0][1].Spec.PredictionWindowSeconds != 3600 || len(p.remove) != 1 || p.remove[0].Name != "all-c" {
		t.Errorf("planNodes = %+v, want all-d created, one updated, one unchanged and all-c removed", p)
	}
}
