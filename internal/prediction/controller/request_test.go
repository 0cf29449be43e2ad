// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/prediction/predictor"
)

func testSelector(t *testing.T) Selector {
	t.Helper()

	c := prometheus.DefaultConfig()
	c.Address = "http://localhost:1"
	s, err := prometheus.New(c)
	if err != nil {
		t.Fatal(err)
	}

	return s.Selector
}

func target(kind, namespace, name string) *predictionv1alpha1.TimeSeriesPrediction {
	return &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef: &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name},
		},
	}
}

func TestRequestOf(t *testing.T) {
	cpu := corev1.ResourceCPU
	disk := corev1.ResourceName("disk")
	metric := func(conditions ...predictionv1alpha1.QueryCondition) predictionv1alpha1.PredictionMetric {
		return predictionv1alpha1.PredictionMetric{
			Type:        predictionv1alpha1.MetricQueryMetricType,
			MetricQuery: &predictionv1alpha1.MetricQuery{MetricName: "http_requests", QueryConditions: conditions},
		}
	}

	resource := func(r *corev1.ResourceName) predictionv1alpha1.PredictionMetric {
		return predictionv1alpha1.PredictionMetric{Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: r}
	}
	expression := func(text string) predictionv1alpha1.PredictionMetric {
		return predictionv1alpha1.PredictionMetric{
			Type: predictionv1alpha1.ExpressionQueryMetricType, ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: text},
		}
	}

	condition := func(op predictionv1alpha1.Operator, values ...string) predictionv1alpha1.QueryCondition {
		return predictionv1alpha1.QueryCondition{Key: "code", Operator: op, Value: values}
	}

	deployment := target("Deployment", "", "web")
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		tsp    *predictionv1alpha1.TimeSeriesPrediction
		metric predictionv1alpha1.PredictionMetric
		want   predictor.Query
		err    string
	}{
		"workload": {deployment, resource(&cpu), predictor.Query{
			Resource: "cpu", Target: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "web"},
		}, ""},
		"workload elsewhere": {target("Rollout", "bank", "web"), resource(&cpu), predictor.Query{
			Resource: "cpu", Target: workload.Ref{Namespace: "bank", Kind: "Rollout", Name: "web"},
		}, ""},
		"node": {target("node", "x", "n1"), resource(&cpu), predictor.Query{
			Resource: "cpu", Target: workload.Ref{Kind: "Node", Name: "n1"},
		}, ""},
		"no resource":       {deployment, resource(nil), predictor.Query{}, "resourceQuery is not set"},
		"unknown resource":  {deployment, resource(&disk), predictor.Query{}, `"disk"`},
		"target of no kind": {target("", "", "web"), resource(&cpu), predictor.Query{}, "targetRef"},
		"long kind":         {target(long, "", "web"), resource(&cpu), predictor.Query{}, "targetRef.kind"},
		"long namespace":    {target("Deployment", long, "web"), resource(&cpu), predictor.Query{}, "targetRef.namespace"},
		"long name":         {target("Deployment", "", long), resource(&cpu), predictor.Query{}, "targetRef.name"},
		"long name of node": {target("Node", "", long), resource(&cpu), predictor.Query{}, "targetRef.name"},
		"metric":            {deployment, metric(), predictor.Query{Expression: "sum(http_requests)"}, ""},
		"metric with conditions": {
			deployment, metric(condition("", "200"), condition("!=", `5"0`), condition("=~", "2.."), condition("!~", "4.."), condition("in", "a.b", "c")),
			predictor.Query{Expression: `sum(http_requests{code!="5\"0",code!~"4..",code="200",code=~"2..",code=~"a\\.b|c"})`},
			"",
		},
		"in without values":     {deployment, metric(condition("in")), predictor.Query{}, "metricQuery.labels[0]"},
		"equal to two":          {deployment, metric(condition("=", "a", "b")), predictor.Query{}, "needs one value, not 2"},
		"equal to none":         {deployment, metric(condition("=")), predictor.Query{}, "needs one value, not 0"},
		"no regular expression": {deployment, metric(condition("=~", "(")), predictor.Query{}, "missing closing"},
		"no operator":           {deployment, metric(condition("~", "a")), predictor.Query{}, "operator"},
		"no label":              {deployment, metric(predictionv1alpha1.QueryCondition{Key: "a} or up{", Value: []string{""}}), predictor.Query{}, "label"},
		"metric query is nil":   {deployment, predictionv1alpha1.PredictionMetric{Type: predictionv1alpha1.MetricQueryMetricType}, predictor.Query{}, "metricQuery"},
		"expression":            {deployment, expression(" sum(up) "), predictor.Query{Expression: "sum(up)"}, ""},
		"empty expression":      {deployment, expression("  "), predictor.Query{}, "empty"},
		"expression is nil":     {deployment, predictionv1alpha1.PredictionMetric{Type: predictionv1alpha1.ExpressionQueryMetricType}, predictor.Query{}, "empty"},
		"no type":               {deployment, predictionv1alpha1.PredictionMetric{}, predictor.Query{}, "want ResourceQuery"},
	} {
		got, err := newRequest(t, c.tsp, &c.metric)
		switch {
		case c.err == "" && (err != nil || got.Query != c.want):
			t.Errorf("%s: %+v, %v; want %+v", name, got.Query, err, c.want)
		case c.err != "" && (err == nil || len(err.Error()) > 1024 || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: QueryOf = %.300v, want an error of at most 1024 bytes with %q", name, err, c.err)
		}
	}
}

// TestMetricAndExpressionAreOneRequest checks that a series is read and forecast once, in whichever form it is
// requested.
func TestMetricAndExpressionAreOneRequest(t *testing.T) {
	tsp := target("Deployment", "", "web")
	byMetric := predictionv1alpha1.PredictionMetric{
		Type: predictionv1alpha1.MetricQueryMetricType,
		MetricQuery: &predictionv1alpha1.MetricQuery{MetricName: "http_requests", QueryConditions: []predictionv1alpha1.QueryCondition{
			{Key: "job", Value: []string{"web"}}, {Key: "code", Operator: "=~", Value: []string{"2.."}},
		}},
	}

	byExpression := predictionv1alpha1.PredictionMetric{
		Type:            predictionv1alpha1.ExpressionQueryMetricType,
		ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: `sum( http_requests{ job="web", code =~ "2.." } )`},
	}

	one, err := newRequest(t, tsp, &byMetric)
	if err != nil {
		t.Fatal(err)
	}

	other, err := newRequest(t, tsp, &byExpression)
	if err != nil || one.Query != other.Query {
		t.Errorf("%q and %q are two queries (%v), want one", one.Query.Expression, other.Query.Expression, err)
	}
}

func TestOptionsOf(t *testing.T) {
	fewest := int32(3)
	got := OptionsOf(predictionv1alpha1.Algorithm{
		DSP: &predictionv1alpha1.DSP{SampleInterval: "30s", HistoryLength: "14d", Estimators: &predictionv1alpha1.Estimators{
			MaxValueEstimators: []predictionv1alpha1.MaxValueEstimator{{MarginFraction: "0.1"}},
			FFTEstimators: []predictionv1alpha1.FFTEstimator{{
				MarginFraction: "0.2", LowAmplitudeThreshold: "1", HighFrequencyThreshold: "0.05", MinNumOfSpectrumItems: &fewest,
			}},
		}},
		Percentile: &predictionv1alpha1.Percentile{
			HistoryLength: "7d", Percentile: "0.95", Histogram: &predictionv1alpha1.HistogramConfig{HalfLife: "12h", MaxValue: "100"},
		},
	})

	if d := got.DSP; d.SampleInterval != "30s" || d.MaxValue[0].MarginFraction != "0.1" || d.FFT[0].HighFrequencyThreshold != "0.05" ||
		*d.FFT[0].MinNumOfSpectrumItems != 3 || d.FFT[0].MaxNumOfSpectrumItems != nil {
		t.Errorf("OptionsOf has DSP %+v, want the settings of the spec", d)
	}
	if p := got.Percentile; p.Percentile != "0.95" || p.Histogram.HalfLife != "12h" || p.Histogram.MaxValue != "100" {
		t.Errorf("OptionsOf has Percentile %+v, want the settings of the spec", p)
	}
}

func TestPredictionName(t *testing.T) {
	if n := predictionName("cnp", "node-1"); n != "cnp-node-1" {
		t.Errorf("predictionName(cnp, node-1) = %s, want cnp-node-1", n)
	}

	long := strings.Repeat("n", 250)
	a := predictionName("cnp", long+"a")
	b := predictionName("cnp", long+"b")
	if len(a) > validation.DNS1123SubdomainMaxLength || a == b {
		t.Errorf("predictionName has %d bytes, equal for two nodes: %v, want at most %d bytes and different names", len(a), a == b, validation.DNS1123SubdomainMaxLength)
	}
}

// TestIsolation: under isolation a prediction reads its own namespace, whatever its queries are.
func TestIsolation(t *testing.T) {
	cpu := corev1.ResourceCPU
	expression := func(text string) predictionv1alpha1.PredictionMetric {
		return predictionv1alpha1.PredictionMetric{
			Type: predictionv1alpha1.ExpressionQueryMetricType, ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: text},
		}
	}

	usage := predictionv1alpha1.PredictionMetric{Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: &cpu}
	byName := predictionv1alpha1.PredictionMetric{
		Type:        predictionv1alpha1.MetricQueryMetricType,
		MetricQuery: &predictionv1alpha1.MetricQuery{MetricName: "revenue", QueryConditions: []predictionv1alpha1.QueryCondition{{Key: "namespace", Value: []string{"bank"}}}},
	}

	cluster := target("Deployment", "bank", "web")
	cluster.Spec.QueryScope = predictionv1alpha1.QueryScopeCluster
	system := target("Node", "", "n1")
	system.Namespace = "crane-system"
	on := Isolation{Enabled: true, Label: "namespace", SystemNamespace: "crane-system"}
	honored := on

	listed := on
	honored.ClusterScope = true
	listed.Unrestricted = []string{"shop"}
	for name, c := range map[string]struct {
		isolation Isolation
		tsp       *predictionv1alpha1.TimeSeriesPrediction
		metric    predictionv1alpha1.PredictionMetric
		want, err string
	}{
		"expression":            {on, target("Deployment", "", "web"), expression(`sum(revenue{namespace="bank"})`), `sum(revenue{namespace="bank",namespace="shop"})`, ""},
		"metric":                {on, target("Deployment", "", "web"), byName, `sum(revenue{namespace="bank",namespace="shop"})`, ""},
		"not PromQL":            {on, target("Deployment", "", "web"), expression(`revenue keep_metric_names`), "", "cannot be restricted"},
		"own workload":          {on, target("Deployment", "", "web"), usage, "cpu of shop/Deployment/web", ""},
		"foreign workload":      {on, target("Deployment", "bank", "web"), usage, "", "queryScope"},
		"node":                  {on, target("Node", "shop", "n1"), usage, "", "queryScope"},
		"scope, not honored":    {on, cluster, usage, "", "queryScope"},
		"scope, honored":        {honored, cluster, usage, "cpu of bank/Deployment/web", ""},
		"unrestricted":          {listed, target("Node", "", "n1"), usage, "cpu of Node/n1", ""},
		"Crane's own namespace": {on, system, usage, "cpu of Node/n1", ""},
		"off":                   {Isolation{}, target("Deployment", "bank", "web"), usage, "cpu of bank/Deployment/web", ""},
	} {
		got, err := QueryOf(c.tsp, &c.metric, testSelector(t), c.isolation)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			continue
		}

		if err != nil || got.String() != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
}

// newRequest returns the request of a metric without isolation.
func newRequest(t *testing.T, tsp *predictionv1alpha1.TimeSeriesPrediction, m *predictionv1alpha1.PredictionMetric) (predictor.Request, error) {
	t.Helper()
	q, err := QueryOf(tsp, m, testSelector(t), Isolation{})
	return requestOf(tsp, m, specQuery{q, err})
}
