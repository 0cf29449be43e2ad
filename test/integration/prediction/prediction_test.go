// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prediction_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

const (
	ready = predictionv1alpha1.ConditionReady
	stale = predictionv1alpha1.ConditionStale
)

// TestForecasts: a periodic, a noisy and a new workload are ready, each with its reason; failures have a reason;
// accuracy is exported; nothing is written twice; a deleted object leaves no metrics.
func TestForecasts(t *testing.T) {
	prometheus, _ := servePrometheus(t)
	craned := startCraned(t, prometheus.URL())
	c := newClient(t)
	mixed := cpuOf("mixed", "periodic", "")

	mixed.Spec.PredictionMetrics = append(mixed.Spec.PredictionMetrics,
		predictionv1alpha1.PredictionMetric{
			ResourceIdentifier: "requests", Type: predictionv1alpha1.MetricQueryMetricType,
			MetricQuery: &predictionv1alpha1.MetricQuery{MetricName: "http_requests", QueryConditions: []predictionv1alpha1.QueryCondition{
				{Key: "zone", Operator: predictionv1alpha1.OperatorIn, Value: []string{"a", "b", "c.d"}},
				{Key: "path", Value: []string{`/x"}`}},
			}},
		},
		predictionv1alpha1.PredictionMetric{
			ResourceIdentifier: "zones", Type: predictionv1alpha1.ExpressionQueryMetricType,
			ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "http_requests / 100"},
			Algorithm:       predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypePercentile},
		})

	short := cpuOf("short", "periodic", predictionv1alpha1.AlgorithmTypeDSP)
	short.Spec.PredictionWindowSeconds = 180 // as in gocrane's examples
	partial := cpuOf("partial", "periodic", "")
	partial.Spec.PredictionMetrics = append(partial.Spec.PredictionMetrics, predictionv1alpha1.PredictionMetric{
		ResourceIdentifier: "broken", Type: predictionv1alpha1.ExpressionQueryMetricType,
		ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "sum("},
	})
	harness.Create(t, c, cpuOf("periodic", "periodic", ""), cpuOf("noisy", "noisy", ""), cpuOf("new", "new", ""),
		cpuOf("new-dsp", "new", predictionv1alpha1.AlgorithmTypeDSP), cpuOf("dsp", "periodic", predictionv1alpha1.AlgorithmTypeDSP),
		cpuOf("none", "none", ""), mixed, partial, short)

	for name, want := range map[string]string{
		"periodic": "periods of 1d", "noisy": "periods of 1d", "new": "of history",
		"new-dsp": "dsp fell back to percentile: history", "dsp": "dsp; ", "short": "dsp; ", "mixed": "zones: percentile",
	} {
		tsp := await(t, c, client.ObjectKey{Namespace: "shop", Name: name}, ready, metav1.ConditionTrue, predictionv1alpha1.ReasonPredictSucceed)
		if m := message(tsp, ready); !strings.Contains(m, want) {
			t.Errorf("%s: message %q, want %q", name, m, want)
		}

		checkSamples(t, tsp, 60)
	}

	none := await(t, c, client.ObjectKey{Namespace: "shop", Name: "none"}, ready, metav1.ConditionFalse, predictionv1alpha1.ReasonPredictFailed)
	eventually(t, "the reason of none", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(none), none); err != nil {
			return err
		}

		if m := message(none, ready); !strings.HasPrefix(m, "resource.cpu: no series for cpu of shop/Deployment/none: it does not exist") {
			return errors.New(m)
		}

		return nil
	})

	broken := await(t, c, client.ObjectKeyFromObject(partial), ready, metav1.ConditionFalse, predictionv1alpha1.ReasonPredictPartial)
	if m := message(broken, ready); !strings.HasPrefix(m, "metrics without a forecast: broken: ") {
		t.Errorf("partial: message %q, want the broken metric", m)
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(mixed), tsp); err != nil {
		t.Fatal(err)
	}

	if m := tsp.Status.PredictionMetrics; len(m) != 3 || len(m[2].Prediction) != 2 || len(m[2].Prediction[0].Labels) == 0 || len(m[1].Prediction) != 1 {
		t.Errorf("mixed: %d metrics, want 3, the last with two series", len(m))
	} else if v, at := value(t, m[1].Prediction[0].Samples[0]), m[1].Prediction[0].Samples[0].Timestamp; math.Abs(v-200*wave(time.Unix(at, 0))) > 30 {
		t.Errorf("the sum of both zones is forecast as %v, want %v", v, 200*wave(time.Unix(at, 0)))
	}

	checkNoChurn(t, c, craned)

	// Accuracy needs samples after the forecast, which takes a minute and a half: a step plus the settling time. The
	// grid of the history extends into the future.
	harness.Eventually(t.Context(), t, 2*timeout, "accuracy", func(ctx context.Context) error {
		page, err := craned.Metrics(ctx)
		if err != nil {
			return err
		}

		for _, want := range []string{
			`crane_prediction_coverage_ratio{name="periodic",namespace="shop",resource_identifier="resource.cpu"} `,
			`crane_prediction_wape_ratio{name="mixed",namespace="shop",resource_identifier="zones"} `,
			`crane_prediction_tsp{algorithm="dsp",resourceIdentifier="resource.cpu",targetKind="Deployment",targetName="new",targetNamespace="shop"} `,
			"crane_predictor_coverage_ratio ", "crane_predictor_skill_ratio ",
		} {
			if !strings.Contains(page, want) {
				return fmt.Errorf("no %s", want)
			}
		}

		return nil
	})

	if err := c.Delete(t.Context(), tsp); err != nil {
		t.Fatal(err)
	}

	eventually(t, "metrics of the deleted object gone", func(ctx context.Context) error {
		page, err := craned.Metrics(ctx)
		if err == nil && strings.Contains(page, `name="mixed"`) {
			err = errors.New("they still exist")
		}

		return err
	})
}

// checkSamples checks the guarantees for consumers: ascending timestamps without gaps, at least one window ahead, five
// decimals.
func checkSamples(t *testing.T, tsp *predictionv1alpha1.TimeSeriesPrediction, step int64) {
	t.Helper()

	now := time.Now().Unix()
	window := int64(tsp.Spec.Window() / time.Second)
	for _, m := range tsp.Status.PredictionMetrics {
		if !m.Ready || m.Reason == "" || m.UpdateTime == nil || m.LastSampleTime == nil || len(m.Prediction) == 0 {
			t.Errorf("%s: %s: ready %v, reason %q, %d series, want it ready with a reason, times and a series", tsp.Name, m.ResourceIdentifier, m.Ready, m.Reason, len(m.Prediction))
			continue
		}

		for _, s := range m.Prediction {
			first := s.Samples[0].Timestamp
			last := s.Samples[len(s.Samples)-1].Timestamp
			if first > now || last < now+window-60 || last > now+2*window+60 { // one step more
				t.Errorf("%s: %s: from %d to %d at %d, want the whole window", tsp.Name, m.ResourceIdentifier, first, last, now)
			}

			for i, x := range s.Samples {
				if v := value(t, x); v < 0 || math.IsInf(v, 0) || math.IsNaN(v) || !strings.Contains(x.Value, ".") || len(x.Value)-strings.Index(x.Value, ".") != 6 {
					t.Errorf("%s: %s: value %q, want a number with 5 decimals", tsp.Name, m.ResourceIdentifier, x.Value)
				}
				if i > 0 && x.Timestamp-s.Samples[i-1].Timestamp != step {
					t.Errorf("%s: %s: %d s between samples, want %d", tsp.Name, m.ResourceIdentifier, x.Timestamp-s.Samples[i-1].Timestamp, step)
				}
			}
		}
	}
}

func value(t *testing.T, s predictionv1alpha1.Sample) float64 {
	t.Helper()

	v, err := strconv.ParseFloat(s.Value, 64)
	if err != nil {
		t.Error(err)
	}

	return v
}

// checkNoChurn checks that ready objects are not rewritten.
func checkNoChurn(t *testing.T, c client.Client, craned *harness.Craned) {
	t.Helper()

	versions := func() map[string]string {
		var list predictionv1alpha1.TimeSeriesPredictionList
		if err := c.List(t.Context(), &list, client.InNamespace("shop")); err != nil {
			t.Fatal(err)
		}

		out := map[string]string{}
		for _, tsp := range list.Items {
			out[tsp.Name] = tsp.ResourceVersion
		}

		return out
	}

	before := versions()
	looks := reads(t, craned)
	eventually(t, "some more reads", func(context.Context) error {
		if n := reads(t, craned); n < looks+3 {
			return fmt.Errorf("%d", n)
		}

		return nil
	})

	for name, version := range versions() {
		if before[name] != version {
			t.Errorf("%s was written again, want no change", name)
		}
	}
}

// reads returns the number of reads of new samples.
func reads(t *testing.T, craned *harness.Craned) int {
	t.Helper()

	page, err := craned.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	_, rest, _ := strings.Cut(page, "\n"+`crane_predictor_reads_total{kind="refresh",result="success"} `)
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(line)

	return n
}

// TestPrometheusGoesAndComesBack: during an outage forecasts stay, are marked stale with the reason, and recover; a
// restart loads checkpoints and keeps the statuses.
func TestPrometheusGoesAndComesBack(t *testing.T) {
	prometheus, asked := servePrometheus(t)
	state := t.TempDir()
	craned := startCraned(t, prometheus.URL(), "--prediction-state-dir="+state, "--prometheus-timeout=2s")
	c := newClient(t)

	fast := cpuOf("fast", "periodic", predictionv1alpha1.AlgorithmTypePercentile)
	fast.Spec.PredictionMetrics[0].Algorithm.Percentile = &predictionv1alpha1.Percentile{SampleInterval: "15s", HistoryLength: "2d"}
	harness.Create(t, c, fast, cpuOf("periodic", "periodic", ""))
	key := client.ObjectKeyFromObject(fast)
	await(t, c, key, ready, metav1.ConditionTrue, predictionv1alpha1.ReasonPredictSucceed)
	await(t, c, client.ObjectKey{Namespace: "shop", Name: "periodic"}, ready, metav1.ConditionTrue, predictionv1alpha1.ReasonPredictSucceed)
	await(t, c, key, stale, metav1.ConditionFalse, predictionv1alpha1.ReasonUpToDate)

	if err := prometheus.Stop(); err != nil {
		t.Fatal(err)
	}

	aged := await(t, c, key, stale, metav1.ConditionTrue, predictionv1alpha1.ReasonSourceFailed)
	if m := message(aged, stale); !strings.Contains(m, "resource.cpu: no new samples since ") ||
		!strings.Contains(m, "Prometheus cannot be reached") || strings.Contains(m, "127.0.0.1") {
		t.Errorf("message %q, want the age and the error without an address", m)
	}
	if !meta.IsStatusConditionTrue(aged.Status.Conditions, ready) {
		t.Error("a stale forecast is not served, want it Ready")
	}

	checkSamples(t, aged, 15)

	craned.Stop(t)
	if files, err := os.ReadDir(state); err != nil || len(files) != 2 {
		t.Errorf("%d checkpoints, %v, want 2", len(files), err)
	}

	histories, _ := asked.counts()
	craned = startCraned(t, prometheus.URL(), "--prediction-state-dir="+state, "--prometheus-timeout=2s")
	eventually(t, "craned restored two", func(ctx context.Context) error {
		page, err := craned.Metrics(ctx)
		if err == nil && !strings.Contains(page, "\ncrane_predictor_restored_total 2\n") {
			err = errors.New("not yet")
		}

		return err
	})

	if err := prometheus.Start(); err != nil {
		t.Fatal(err)
	}

	fresh := await(t, c, key, stale, metav1.ConditionFalse, predictionv1alpha1.ReasonUpToDate)
	if !meta.IsStatusConditionTrue(fresh.Status.Conditions, ready) {
		t.Error("not Ready after all has recovered, want it Ready")
	}
	if n, _ := asked.counts(); n != histories {
		t.Errorf("%d histories were read after the restart, want none", n-histories)
	}
}

// awaitReady waits until a number of objects in the namespace shop have a forecast.
func awaitReady(t *testing.T, c client.Client, count int, within time.Duration) {
	t.Helper()

	harness.Eventually(t.Context(), t, within, "all forecasts are ready", func(ctx context.Context) error {
		var list predictionv1alpha1.TimeSeriesPredictionList
		if err := c.List(ctx, &list, client.InNamespace("shop")); err != nil {
			return err
		}

		n := 0
		for _, tsp := range list.Items {
			if meta.IsStatusConditionTrue(tsp.Status.Conditions, ready) {
				n++
			}
		}

		if n < count {
			return fmt.Errorf("%d of %d", n, count)
		}

		return nil
	})
}

// TestManyShareOneSeries: 300 objects about three workloads send the queries of three.
func TestManyShareOneSeries(t *testing.T) {
	prometheus, asked := servePrometheus(t)
	c := newClient(t)
	const many = 300
	targets := []string{"periodic", "noisy", "new"}
	for i := range many {
		harness.Create(t, c, cpuOf(fmt.Sprintf("many-%d", i), targets[i%len(targets)], ""))
	}

	craned := startCraned(t, prometheus.URL())
	awaitReady(t, c, many, 2*timeout)

	// Two range queries for each history, which exceeds the points of one query.
	if histories, _ := asked.counts(); histories > 2*len(targets) {
		t.Errorf("%d queries of histories, want at most %d for three series", histories, 2*len(targets))
	}

	page, err := craned.Metrics(t.Context())
	if err != nil || !strings.Contains(page, "\ncrane_predictor_models 3\n") {
		t.Errorf("not three models, %v", err)
	}
}

// TestNodesAreFollowed: there is one prediction for each matching node, none for a deleted one, and none without a
// template.
func TestNodesAreFollowed(t *testing.T) {
	prometheus, _ := servePrometheus(t)
	startCraned(t, prometheus.URL())
	c := newClient(t)
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
	}

	first := node("node-0", "a")
	second := node("node-1", "a")
	foreign := cpuOf("nodes-node-2", "periodic", "")
	foreign.Namespace = "nodes"
	harness.Create(t, c, first, second, node("node-2", "b"), foreign)
	template := cpuOf("", "", "").Spec
	template.TargetRef = nil

	cnp := &predictionv1alpha1.ClusterNodePrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nodes", Name: "nodes"},
		Spec:       predictionv1alpha1.ClusterNodePredictionSpec{NodeSelector: map[string]string{"zone": "a"}},
	}
	harness.Create(t, c, cnp)

	counts := func(desired, current int, reason string) {
		t.Helper()

		eventually(t, fmt.Sprintf("%d of %d, %s", current, desired, reason), func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(cnp), cnp); err != nil {
				return err
			}

			got := meta.FindStatusCondition(cnp.Status.Conditions, ready)
			if got == nil || got.Reason != reason || cnp.Status.DesiredNumberCreated != desired || cnp.Status.CurrentNumberCreated != current {
				return fmt.Errorf("%+v", cnp.Status)
			}

			return nil
		})
	}

	counts(2, 0, predictionv1alpha1.ReasonNoTemplate)
	change := func(edit func()) {
		t.Helper()

		before := cnp.DeepCopy()
		edit()

		if err := c.Patch(t.Context(), cnp, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}

	change(func() { cnp.Spec.Template = &predictionv1alpha1.TimeSeriesPredictionTemplate{Spec: template} })
	counts(2, 2, predictionv1alpha1.ReasonAllCreated)

	made := await(t, c, client.ObjectKey{Namespace: "nodes", Name: "nodes-node-0"}, ready, metav1.ConditionTrue, predictionv1alpha1.ReasonPredictSucceed)
	if ref := made.Spec.TargetRef; ref == nil || ref.Kind != "Node" || ref.Name != "node-0" || !metav1.IsControlledBy(made, cnp) {
		t.Errorf("target %+v, want Node node-0 and the ClusterNodePrediction as its owner", made.Spec.TargetRef)
	}

	first0 := made.Status.PredictionMetrics[0].Prediction[0].Samples[0]
	if v, used := value(t, first0), wave(time.Unix(first0.Timestamp, 0))/4; math.Abs(v-used) > 0.1 {
		t.Errorf("node-0 is forecast to use %v, want %v", v, used)
	}

	// One node is deleted, one changes its labels, and the prediction name of one is in use.
	if err := c.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	counts(1, 1, predictionv1alpha1.ReasonAllCreated)
	gone := client.ObjectKey{Namespace: "nodes", Name: "nodes-node-1"}
	if err := c.Get(t.Context(), gone, &predictionv1alpha1.TimeSeriesPrediction{}); !apierrors.IsNotFound(err) {
		t.Errorf("the prediction of a deleted node: %v", err)
	}

	change(func() { cnp.Spec.NodeSelector = map[string]string{"zone": "b"} })
	counts(1, 0, predictionv1alpha1.ReasonNotCreated)

	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil || metav1.IsControlledBy(foreign, cnp) {
		t.Errorf("the object of another: %v", err)
	}

	relabeled := first.DeepCopy()
	relabeled.Labels["zone"] = "c"
	change(func() { cnp.Spec.NodeSelector = map[string]string{"zone": "c"} })
	counts(0, 0, predictionv1alpha1.ReasonAllCreated)

	if err := c.Patch(t.Context(), relabeled, client.MergeFrom(first)); err != nil {
		t.Fatal(err)
	}

	counts(1, 1, predictionv1alpha1.ReasonAllCreated)
	change(func() { cnp.Spec.Template = nil })
	counts(1, 0, predictionv1alpha1.ReasonNoTemplate)
}
