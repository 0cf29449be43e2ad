// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/scaling"
)

func conditionText(e *scaler, kind string) string {
	c := meta.FindStatusCondition(e.Status.Conditions, kind)
	if c == nil {
		return ""
	}

	return string(c.Status) + "/" + c.Reason
}

// writeForecast writes a flat forecast from the current time on.
func (b *fixture) writeForecast(t testing.TB, name, skill string, value float64) {
	t.Helper()

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, tsp); err != nil {
		t.Fatal(err)
	}

	made := metav1.NewTime(b.clock.Now())
	m := predictionv1alpha1.PredictionMetricStatus{
		ResourceIdentifier: tsp.Spec.PredictionMetrics[0].ResourceIdentifier, Ready: true, Skill: skill, UpdateTime: &made, LastSampleTime: &made,
		Prediction: []predictionv1alpha1.MetricTimeSeries{{}},
	}

	if plant := tsp.Spec.PredictionMetrics[0].Scaling; plant != nil { // the whole forecast, in pods filled to the target of the HPA
		m.Scaling = &predictionv1alpha1.ScalingChoice{Use: true, Quantile: "0.95", Fill: string(plant.Target), LeadSeconds: 3600, Why: "it paid"}
	}

	for i := range 120 {
		m.Prediction[0].Samples = append(m.Prediction[0].Samples, predictionv1alpha1.Sample{
			Value: strconv.FormatFloat(value, 'f', 5, 64), Timestamp: made.Add(time.Duration(i) * time.Minute).Unix(),
		})
	}

	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{m}
	if err := b.Client.Status().Update(t.Context(), tsp); err != nil {
		t.Fatal(err)
	}
}

// writeHPAStatus writes the status that the HPA controller would write.
func (b *fixture) writeHPAStatus(t testing.TB, name string, current, desired, percent int32) {
	t.Helper()

	h := b.hpa(t, name)
	h.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: new(int64(1)), CurrentReplicas: current, DesiredReplicas: desired,
		CurrentMetrics: []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: &percent},
		}}},
		Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue, Reason: "ValidMetricFound"}},
	}

	if err := b.Client.Status().Update(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

// TestSteadyStateWritesNothing checks that time and small changes of values cause no writes.
func TestSteadyStateWritesNothing(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web(func(e *scaler) {
		e.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(60))}}
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{{CronName: "night", Start: "0 22 * * *", End: "0 6 * * *", TargetReplicas: 3}}
	}))
	b.reconcile(t, "web")
	b.writeForecast(t, "ehpa-web", "0.5", 0.3)
	b.writeHPAStatus(t, "ehpa-web", 4, 4, 58)
	b.reconcile(t, "web")

	e, _ := b.reconcile(t, "web")
	if conditionText(e, "Ready") != "True/EffectiveHorizontalPodAutoscalerReady" || conditionText(e, "PredictionReady") != "True/Predicting" {
		t.Fatalf("conditions %+v, want Ready and PredictionReady", e.Status.Conditions)
	}

	since := meta.FindStatusCondition(e.Status.Conditions, "Ready").LastTransitionTime
	for i := range 40 {
		b.clock.Step(15 * time.Second)
		b.writeHPAStatus(t, "ehpa-web", 4, 4, 57+int32(i%4))

		if _, n := b.reconcile(t, "web"); n > 0 {
			t.Fatalf("reconciliation %d: %d writes, want none", i, n)
		}
	}

	b.writeHPAStatus(t, "ehpa-web", 4, 6, 90)
	e, n := b.reconcile(t, "web")
	if n == 0 || *e.Status.ExpectReplicas != 6 || e.Status.Winner != "resource.cpu" {
		t.Errorf("%d writes, status %+v, want a write of 6 replicas by resource.cpu", n, e.Status)
	}
	if got := meta.FindStatusCondition(e.Status.Conditions, "Ready").LastTransitionTime; !got.Equal(&since) {
		t.Errorf("Ready since %s, want %s: it moved without a transition", got, since)
	}
}

// TestForecastRunsOut checks that a forecast that is not renewed is removed from the HPA when it ends.
func TestForecastRunsOut(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web())
	b.reconcile(t, "web")
	b.writeForecast(t, "ehpa-web", "0.5", 3)
	b.reconcile(t, "web")

	if n := len(b.hpa(t, "ehpa-web").Spec.Metrics); n != 2 {
		t.Fatalf("the HPA has %d metrics, want 2", n)
	}

	b.clock.Step(119*time.Minute + time.Second)
	e, _ := b.reconcile(t, "web")
	if got := conditionText(e, "PredictionReady"); got != "False/PredictionIgnored" || len(b.hpa(t, "ehpa-web").Spec.Metrics) != 1 {
		t.Errorf("PredictionReady %s with %d metrics, want False/PredictionIgnored with 1", got, len(b.hpa(t, "ehpa-web").Spec.Metrics))
	}
}

// TestReconcile_AdapterMissing checks that no HPA gets a forecast that is not served, and that an HPA loses it only after the grace period.
func TestReconcile_AdapterMissing(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web())
	b.served = MetricAvailability{}
	b.reconcile(t, "web")
	b.writeForecast(t, "ehpa-web", "0.5", 3)

	for _, c := range []struct {
		served MetricAvailability
		want   int
		says   string
	}{
		{MetricAvailability{}, 1, "False/MetricsAPIMissing"},
		{MetricAvailability{Served: true}, 2, "True/Predicting"},
		{MetricAvailability{}, 2, "True/Predicting"},
		{MetricAvailability{Expired: true}, 1, "False/MetricsAPIMissing"},
		{MetricAvailability{}, 1, "False/MetricsAPIMissing"},
	} {
		b.served = c.served
		e, _ := b.reconcile(t, "web")
		if got := len(b.hpa(t, "ehpa-web").Spec.Metrics); got != c.want || conditionText(e, "PredictionReady") != c.says {
			t.Errorf("%+v: %d metrics, %s; want %d, %s", c.served, got, conditionText(e, "PredictionReady"), c.want, c.says)
		}
	}
}

// TestContradictoryBounds checks that a stored object that violates the schema changes nothing.
func TestContradictoryBounds(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web())
	b.reconcile(t, "web")

	e, _ := b.reconcile(t, "web")
	e.Spec.MaxReplicas = 1
	if err := b.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	e, _ = b.reconcile(t, "web")
	if got := conditionText(e, "Ready"); got != "False/InvalidSpec" || b.hpa(t, "ehpa-web").Spec.MaxReplicas != 20 {
		t.Errorf("Ready %s, maxReplicas %d, want False/InvalidSpec and the 20 of before", got, b.hpa(t, "ehpa-web").Spec.MaxReplicas)
	}
}

// TestTargetThatMovesOn checks that the HPA of the previous target is deleted even if the new target does not exist.
func TestTargetThatMovesOn(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web())
	b.reconcile(t, "web")

	e, _ := b.reconcile(t, "web")
	e.Spec.ScaleTargetRef.Name = "gone"
	if err := b.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	e, _ = b.reconcile(t, "web")
	if got := conditionText(e, "Ready"); got != "False/FailedGetScale" || b.hpa(t, "ehpa-web") != nil {
		t.Errorf("Ready %s, HPA %+v, want False/FailedGetScale and no HPA", got, b.hpa(t, "ehpa-web"))
	}
}

// TestOneForecastForATarget checks that of two autoscalers of a target, the metric adapter finds only the prediction of the one that
// scales.
func TestOneForecastForATarget(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web(), web(func(e *scaler) {
		e.Name = "young"
		e.UID = "uid-of-young"
		e.CreationTimestamp = metav1.NewTime(noon().Add(time.Hour))
	}))

	key := scalingmetric.Key{TargetKind: "Deployment", TargetName: "web", TargetNamespace: "shop", Identifier: "resource.cpu"}
	listed := func(name string) bool {
		tsp := &predictionv1alpha1.TimeSeriesPrediction{}
		if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, tsp); err != nil {
			t.Fatal(err)
		}

		return key.SelectsPrediction(tsp)
	}

	b.reconcile(t, "web")
	young, _ := b.reconcile(t, "young")
	if conditionText(young, "Ready") != "False/TargetTaken" || !listed("ehpa-web") || listed("ehpa-young") {
		t.Errorf("Ready %s, found old %v, young %v, want False/TargetTaken and the old one alone", conditionText(young, "Ready"), listed("ehpa-web"), listed("ehpa-young"))
	}

	old, _ := b.reconcile(t, "web")
	if err := b.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}

	if young, _ = b.reconcile(t, "young"); !listed("ehpa-young") || conditionText(young, "Ready") != "True/EffectiveHorizontalPodAutoscalerReady" {
		t.Errorf("after the old one: Ready %s, found %v, want the young one ready and found", conditionText(young, "Ready"), listed("ehpa-young"))
	}

	b.reconcile(t, "young") // reads the HPA that it created
	if _, n := b.reconcile(t, "young"); n > 0 {
		t.Errorf("%d writes without a change, want none", n)
	}
}

// TestCronFloor checks that the highest open window sets the floor, within maxReplicas, and that the next reconcile is at the next
// change.
func TestCronFloor(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web(func(e *scaler) {
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{
			{CronName: "noon", Start: "0 12 * * *", End: "0 13 * * *", TargetReplicas: 8},
			{CronName: "peak", Start: "30 12 * * *", End: "0 13 * * *", TargetReplicas: 90},
		}
	}))

	for after, want := range map[time.Duration]int32{0: 8, 30 * time.Minute: 20, time.Hour: 2} {
		b.clock.SetTime(noon().Add(after))
		b.reconcile(t, "web")

		if got := *b.hpa(t, "ehpa-web").Spec.MinReplicas; got != want {
			t.Errorf("%s after noon: minReplicas %d, want %d", after, got, want)
		}
	}

	b.clock.SetTime(noon().Add(time.Minute))
	o, err := b.observe(t.Context(), web(func(e *scaler) {
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{{CronName: "peak", Start: "30 12 * * *", End: "0 13 * * *"}}
	}))
	if err != nil {
		t.Fatal(err)
	}

	p := decide(o, b.Queries, Settings{Zones: scalingmetric.NewZones(false)})
	if got := requeueAfter(o, p, applied{}); got != podRequestsMaxAge {
		t.Errorf("looks again in %s, want %s", got, podRequestsMaxAge)
	}

	o.requests = nil
	if got := requeueAfter(o, p, applied{}); got != 29*time.Minute {
		t.Errorf("without a forecast looks again in %s, want 29m", got)
	}
}

// TestPredictionNeverScalesBelowCurrentMetrics checks with random loads and forecasts that a forecast never lowers the replicas.
func TestPredictionNeverScalesBelowCurrentMetrics(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 40 {
		current := 1 + r.Int32N(20)
		use := r.Float64()
		cores := 6 * r.Float64()
		with := computePreview(t, current, use, &cores)

		without := computePreview(t, current, use, nil)
		if *with.replicas < *without.replicas {
			t.Fatalf("step %d: %d pods at %.0f %% and a forecast of %.2f cores: %d replicas, want at least the %d without it", i, current, 100*use, cores, *with.replicas, *without.replicas)
		}
	}
}

// computePreview computes one sync for pods that use a fraction of 250m, with a forecast in cores.
func computePreview(t *testing.T, current int32, use float64, forecast *float64) *decision {
	t.Helper()

	var pods []scaling.Pod
	for range current {
		pods = append(pods, scaling.Pod{Usage: scaling.Thousandths(use * 0.25), Request: 250})
	}

	e := web(func(e *scaler) { e.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyPreview })
	theirs := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "theirs"}}
	theirs.Spec.ScaleTargetRef = e.Spec.ScaleTargetRef
	b := newFixture(t, deployment("web", current), e, theirs)
	b.values["resource.cpu"] = hpametrics.Value{Pods: pods}
	b.reconcile(t, "web")

	if forecast != nil {
		b.writeForecast(t, "ehpa-web", "0.5", *forecast)
	}

	b.clock.Step(time.Minute)
	o, err := b.observe(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}

	p := decide(o, b.Queries, b.Settings)
	if !p.computePreview {
		t.Fatalf("decide plans no preview, want one: %+v", p.ready)
	}

	return b.Preview.Compute(t.Context(), o, p)
}

func TestPreview_Reason(t *testing.T) {
	cores := 1.8
	p := computePreview(t, 4, 0.3, &cores)
	if *p.replicas != 8 || p.winner != "prediction of resource.cpu" || !strings.Contains(p.reason, "limited to 8") {
		t.Errorf("preview %+v, want 8 replicas by the prediction, limited", p)
	}
	if len(p.proposals) != 2 || *p.proposals[0].Replicas != 2 || *p.proposals[1].Replicas != 12 || p.proposals[1].Target != "150m" {
		t.Errorf("proposals %+v, want 2 replicas and 12 at a target of 150m", p.proposals)
	}
}

func TestProbe(t *testing.T) {
	b := newFixture(t)
	var list *metav1.APIResourceList
	var err error

	p := &MetricProbe{ListMetrics: func() (*metav1.APIResourceList, error) { return list, err }, GracePeriod: time.Minute, Clock: b.clock}
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "")
	served := &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "other"}, {Name: autoscalingv1alpha1.MetricPrediction}}}
	for i, c := range []struct {
		list *metav1.APIResourceList
		err  error
		step time.Duration
		want MetricAvailability
	}{
		{served, nil, 0, MetricAvailability{Served: true}},
		{nil, errors.New("connection refused"), time.Hour, MetricAvailability{Served: true}},
		{nil, notFound, 0, MetricAvailability{}},
		{nil, apierrors.NewTooManyRequests("busy", 1), time.Second, MetricAvailability{}},
		{nil, apierrors.NewServiceUnavailable("the adapter is gone"), 58 * time.Second, MetricAvailability{}},
		{nil, apierrors.NewInternalError(errors.New("etcd")), time.Minute, MetricAvailability{}},
		{&metav1.APIResourceList{}, nil, 2 * time.Second, MetricAvailability{Expired: true}},
		{served, nil, time.Second, MetricAvailability{Served: true}},
		{nil, notFound, time.Hour, MetricAvailability{}},
	} {
		b.clock.Step(c.step)
		list, err = c.list, c.err
		p.refresh()

		if got := p.Availability(); got != c.want {
			t.Errorf("round %d: %+v, want %+v", i, got, c.want)
		}
	}
}

func TestQueries(t *testing.T) {
	external := func(name string, selector map[string]string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: name, Selector: &metav1.LabelSelector{MatchLabels: selector}},
		}}
	}

	container := autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceMemory, Container: "main",
	}}
	pods := autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "requests"}}}
	object := autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{}}
	b := newFixture(t)

	ruled, err := promadapter.Parse([]byte("externalRules: [{seriesQuery: depth, name: {as: queue}, metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>})'}]"), nil)
	if err != nil {
		t.Fatal(err)
	}

	annotated := map[string]string{"metric-query.autoscaling.crane.io/external.queue": "sum(mine)", "metric-query.autoscaling.crane.io/": "sum(nothing)"}
	for name, c := range map[string]struct {
		metric autoscalingv2.MetricSpec
		rules  *promadapter.Rules
		notes  map[string]string
		want   string
		err    string
	}{
		"cpu is the workload's":       {utilization(corev1.ResourceCPU, 50), ruled, nil, "ResourceQuery cpu", ""},
		"an unknown resource":         {utilization("nvidia.com/gpu", 50), nil, nil, "", "is not known"},
		"a sum with sorted labels":    {external("queue", map[string]string{"b": "2", "a": "1"}), nil, nil, `sum(queue{a="1",b="2"})`, ""},
		"a value that no label has":   {external("queue", map[string]string{"c": `"`}), nil, nil, "", "selector: values[0][c]"},
		"the rule before the usual":   {external("queue", map[string]string{"a": "1"}), ruled, nil, `sum(max(depth{a="1"}))`, ""},
		"the annotation before rules": {external("queue", nil), ruled, annotated, "sum(mine)", ""},
		"pods of the workload":        {pods, nil, nil, `sum(requests{namespace="shop",pod=~"(web)-[a-z0-9]{1,10}-[a-z0-9]{5}"})`, ""},
		"one container": {
			container, nil, nil,
			`sum(max by (namespace, pod, container) (container_memory_working_set_bytes{namespace="shop",pod=~"(web)-[a-z0-9]{1,10}-[a-z0-9]{5}",container="main"}))`, "",
		},
		"objects are not forecast": {object, nil, nil, "", "not forecast"},
	} {
		b.rules = c.rules
		b.series = listSeries(t, c.rules, "depth")
		got, err := b.Queries.build(web(func(e *scaler) { e.Annotations = c.notes }), &c.metric, scalingmetric.Identifiers([]autoscalingv2.MetricSpec{c.metric})[0])
		text := string(got.Type)
		if got.ResourceQuery != nil {
			text += " " + string(*got.ResourceQuery)
		}

		if got.ExpressionQuery != nil {
			text = got.ExpressionQuery.Expression
		}
		if text != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: query %s, error %v, want %s, error %q", name, text, err, c.want, c.err)
		}
	}
}

// TestNoPromQL checks that without a source of PromQL cron windows and current metrics work, usage is forecast from other sources, and the
// condition names the metrics that need PromQL.
func TestNoPromQL(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web(func(e *scaler) {
		e.Spec.Metrics = append(e.Spec.Metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "requests"},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(100, resource.DecimalSI)},
		}})
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{{CronName: "noon", Start: "0 12 * * *", End: "0 13 * * *", TargetReplicas: 8}}
	}))

	b.Queries.Selector = func(string, ...prometheus.Matcher) (string, error) { return "", metrics.ErrUnsupported }
	b.Queries.NoPromQL = errors.New("its forecast needs PromQL, and --datasource has no prom")

	e, _ := b.reconcile(t, "web")
	if got := conditionText(e, "Ready"); got != "True/EffectiveHorizontalPodAutoscalerReady" {
		t.Errorf("Ready %s, want True/EffectiveHorizontalPodAutoscalerReady", got)
	}
	if h := b.hpa(t, "ehpa-web"); *h.Spec.MinReplicas != 8 || len(h.Spec.Metrics) != 2 {
		t.Errorf("HPA %+v, want minReplicas 8 and 2 metrics", h.Spec)
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}, tsp); err != nil {
		t.Fatal(err)
	}

	if m := tsp.Spec.PredictionMetrics; len(m) != 1 || m[0].ResourceIdentifier != "resource.cpu" {
		t.Errorf("forecasts of %+v, want resource.cpu alone", m)
	}

	ready := meta.FindStatusCondition(e.Status.Conditions, "PredictionReady")
	if ready == nil || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, "pods.requests: its forecast needs PromQL") {
		t.Errorf("PredictionReady %+v, want False because pods.requests needs PromQL", ready)
	}
}

// TestRulesAreReadLate checks that a query from a rule stays until prometheus-adapter's configuration has been read.
func TestRulesAreReadLate(t *testing.T) {
	rules, err := promadapter.Parse([]byte("resourceRules: {cpu: {containerQuery: 'busy{<<.LabelMatchers>>}'}}"), nil)
	if err != nil {
		t.Fatal(err)
	}

	b := newFixture(t, deployment("web", 2), web())
	query := func() string {
		t.Helper()

		b.reconcile(t, "web")
		tsp := &predictionv1alpha1.TimeSeriesPrediction{}
		if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}, tsp); err != nil {
			t.Fatal(err)
		}

		if q := tsp.Spec.PredictionMetrics[0].ExpressionQuery; q != nil {
			return q.Expression
		}

		return ""
	}

	b.rules = rules
	if got := query(); !strings.HasPrefix(got, "sum(busy{") {
		t.Fatalf("query with the rule is %q, want one of busy", got)
	}

	b.rules = nil
	b.rulesUnread = true

	if got := query(); !strings.HasPrefix(got, "sum(busy{") {
		t.Errorf("query before the rules are read is %q, want one of busy", got)
	}

	b.rulesUnread = false
	if got := query(); got != "" {
		t.Errorf("query without a rule is %q, want none", got)
	}
}

func TestPropagation(t *testing.T) {
	p := Propagation{Labels: []string{"team"}, AnnotationPrefixes: []string{"cost/"}}
	b := newFixture(t, deployment("web", 2), web(func(e *scaler) {
		e.Labels = map[string]string{"team": "shop", "other": "x"}
		e.Annotations = map[string]string{"cost/center": "7", "note": "x"}
	}))
	b.Settings.Propagation = p
	e, _ := b.reconcile(t, "web")

	h := b.hpa(t, "ehpa-web")
	if h.Labels["team"] != "shop" || h.Labels["other"] != "" || h.Annotations["cost/center"] != "7" || h.Annotations["note"] != "" {
		t.Errorf("labels %v, annotations %v, want those that are propagated alone", h.Labels, h.Annotations)
	}

	h.Annotations["theirs"] = "stays"
	if err := b.Client.Update(t.Context(), h); err != nil {
		t.Fatal(err)
	}

	delete(e.Annotations, "cost/center")
	if err := b.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	b.reconcile(t, "web")
	if h = b.hpa(t, "ehpa-web"); h.Annotations["theirs"] != "stays" || h.Annotations["cost/center"] != "" {
		t.Errorf("annotations %v, want those of others kept and the removed one gone", h.Annotations)
	}
	if _, n := b.reconcile(t, "web"); n > 0 {
		t.Errorf("%d writes without a change, want none", n)
	}
}

func TestLongNames(t *testing.T) {
	long := strings.Repeat("a", 253)
	if n := managedName(long); len(n) > 253 || n == managedName(long[1:]) {
		t.Errorf("managedName has %d characters, want at most 253, and another name for another autoscaler", len(n))
	}
	if v := scalingmetric.LabelValue(long); len(v) > 63 {
		t.Errorf("labelValue has %d characters, want at most 63", len(v))
	}
}

// BenchmarkReconcileSteady measures the reconcile of an unchanged autoscaler.
func BenchmarkReconcileSteady(b *testing.B) {
	objects := []client.Object{}
	const scalers = 500 // The fake client, unlike a cache, scans all objects for an index.
	for i := range scalers {
		name := fmt.Sprintf("web-%d", i)
		objects = append(objects, deployment(name, 4), web(func(e *scaler) {
			e.Name = name
			e.UID = types.UID("uid-of-" + name)
			e.Spec.ScaleTargetRef.Name = name
		}))
	}

	k := newFixture(b, objects...)
	k.reconcile(b, "web-0")
	k.writeForecast(b, "ehpa-web-0", "0.5", 0.3)
	k.writeHPAStatus(b, "ehpa-web-0", 4, 4, 58)
	k.reconcile(b, "web-0")
	b.ReportAllocs()

	for b.Loop() {
		if _, n := k.reconcile(b, "web-0"); n > 0 {
			b.Fatalf("%d writes without a change, want none", n)
		}
	}
}

// TestOptedOut checks that the label crane.io/opt-out of a target or its namespace stops all changes, and that they go on without it.
func TestOptedOut(t *testing.T) {
	label := func(o client.Object, value string) {
		o.SetLabels(map[string]string{analysisv1alpha1.LabelOptOut: value})
	}
	for _, of := range []string{"target", "namespace"} {
		t.Run(of, func(t *testing.T) {
			target := deployment("web", 4)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			b := newFixture(t, target, namespace, web(), deployment("new", 4), web(func(e *scaler) {
				e.Name = "new"
				e.UID = "uid-of-new"
				e.Spec.ScaleTargetRef.Name = "new"
				e.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyPreview
				e.Spec.SpecificReplicas = new(int32(7))
			}))

			b.reconcile(t, "web")
			set := func(value string) {
				t.Helper()

				objects := []client.Object{namespace}
				if of == "target" {
					objects = []client.Object{target, deployment("new", 4)}
				}

				for _, o := range objects {
					if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
						t.Fatal(err)
					}

					label(o, value)
					if err := b.Client.Update(t.Context(), o); err != nil {
						t.Fatal(err)
					}
				}
			}

			set("true")
			e, _ := b.reconcile(t, "web")
			e.Spec.MaxReplicas = 30
			if err := b.Client.Update(t.Context(), e); err != nil {
				t.Fatal(err)
			}

			e, _ = b.reconcile(t, "web")
			if got := conditionText(e, "Ready"); got != "False/OptedOut" || b.hpa(t, "ehpa-web").Spec.MaxReplicas != 20 {
				t.Errorf("%s, maxReplicas %d, want 20 as before the label", got, b.hpa(t, "ehpa-web").Spec.MaxReplicas)
			}
			if e, _ := b.reconcile(t, "new"); conditionText(e, "Ready") != "False/OptedOut" || b.hpa(t, "ehpa-new") != nil {
				t.Errorf("a new autoscaler is %s with HPA %v, want False/OptedOut without one", conditionText(e, "Ready"), b.hpa(t, "ehpa-new"))
			}
			if scale, err := b.Targets.Get(t.Context(), targetRef(web(func(e *scaler) { e.Spec.ScaleTargetRef.Name = "new" }))); err != nil || scale.Replicas != 4 {
				t.Errorf("%d replicas, want 4 in spite of specificReplicas: %v", scale.Replicas, err)
			}

			result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)})
			if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > missingTargetRetry {
				t.Errorf("read again after %s, want at most %s: %v", result.RequeueAfter, missingTargetRetry, err)
			}

			set("false")
			e, _ = b.reconcile(t, "web")
			if got := conditionText(e, "Ready"); got != "True/EffectiveHorizontalPodAutoscalerReady" || b.hpa(t, "ehpa-web").Spec.MaxReplicas != 30 {
				t.Errorf("without the label: Ready %s, maxReplicas %d, want True and 30", got, b.hpa(t, "ehpa-web").Spec.MaxReplicas)
			}
		})
	}
}

// TestAdoptedHPAIsReleasedToASibling checks that an adopted HPA is given back with its own spec, and not deleted, when an older autoscaler has the
// same target.
func TestAdoptedHPAIsReleasedToASibling(t *testing.T) {
	own := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own", UID: "uid-of-own"}}
	own.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 5,
	}
	b := newFixture(t, deployment("web", 4), own, web(func(e *scaler) { e.Annotations = map[string]string{autoscalingv1alpha1.AnnotationAdoptHPA: "own"} }))
	b.reconcile(t, "web")

	if h := b.hpa(t, "own"); h.Spec.MaxReplicas != 20 || metav1.GetControllerOf(h) == nil {
		t.Fatalf("HPA %+v, want an adopted one with maxReplicas 20", h)
	}

	older := web(func(e *scaler) {
		e.Name = "older"
		e.UID = "uid-of-older"
		e.CreationTimestamp = metav1.NewTime(noon().Add(-time.Hour))
	})

	if err := b.Client.Create(t.Context(), older); err != nil {
		t.Fatal(err)
	}

	e, _ := b.reconcile(t, "web")
	if got := conditionText(e, "Ready"); got != "False/TargetTaken" {
		t.Errorf("Ready %s, want False/TargetTaken", got)
	}
	if h := b.hpa(t, "own"); h == nil || h.Spec.MaxReplicas != 5 || len(h.OwnerReferences) > 0 {
		t.Errorf("HPA %+v, want it released with maxReplicas 5", h)
	}
}
