// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/pkg/scaling"
)

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// newPrediction returns a forecast of two hours from noon on.
func newPrediction(skill string, values ...float64) *predictionv1alpha1.TimeSeriesPrediction {
	made := metav1.NewTime(noon())
	m := predictionv1alpha1.PredictionMetricStatus{ResourceIdentifier: "resource.cpu", Ready: true, Skill: skill, UpdateTime: &made, LastSampleTime: &made}
	for _, v := range values {
		var s predictionv1alpha1.MetricTimeSeries
		for i := range 120 {
			s.Samples = append(s.Samples, predictionv1alpha1.Sample{
				Value: strconv.FormatFloat(v, 'f', 5, 64), Timestamp: noon().Add(time.Duration(i) * time.Minute).Unix(),
			})
		}

		m.Prediction = append(m.Prediction, s)
	}

	return &predictionv1alpha1.TimeSeriesPrediction{
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			PredictionWindowSeconds: 3600,
			PredictionMetrics:       []predictionv1alpha1.PredictionMetric{{ResourceIdentifier: "resource.cpu"}},
		},
		Status: predictionv1alpha1.TimeSeriesPredictionStatus{PredictionMetrics: []predictionv1alpha1.PredictionMetricStatus{m}},
	}
}

func TestActionableForecast(t *testing.T) {
	percentile := newPrediction("", 0.9)
	percentile.Spec.PredictionMetrics[0].Algorithm.AlgorithmType = predictionv1alpha1.AlgorithmTypePercentile
	old := newPrediction("0.5", 0.9)
	long := metav1.NewTime(noon().Add(-2 * time.Hour))
	old.Status.PredictionMetrics[0].LastSampleTime = &long
	ofGocrane := newPrediction("", 0.9)
	ofGocrane.Spec.PredictionMetrics[0].Algorithm.AlgorithmType = predictionv1alpha1.AlgorithmTypeDSP
	ofGocrane.Status.PredictionMetrics[0].UpdateTime = nil

	ofGocrane.Status.PredictionMetrics[0].LastSampleTime = nil
	broken := newPrediction("0.5", 0.9)
	broken.Status.PredictionMetrics[0].Prediction[0].Samples[3].Value = "lots"
	for name, c := range map[string]struct {
		tsp   *predictionv1alpha1.TimeSeriesPrediction
		after time.Duration
		want  float64
		err   error
	}{
		"good":                         {newPrediction("0.5", 0.9), 0, 0.9, nil},
		"good to its last minute":      {newPrediction("0.5", 0.9), 119 * time.Minute, 0.9, nil},
		"over":                         {newPrediction("0.5", 0.9), 2 * time.Hour, 0, scaling.ErrOutdated},
		"of old samples":               {old, 0, 0, scaling.ErrOutdated},
		"no better than a constant":    {newPrediction("0.09", 0.9), 0, 0, scaling.ErrNoSkill},
		"worse than a constant":        {newPrediction("-1.5", 0.9), 0, 0, scaling.ErrNoSkill},
		"of unknown skill":             {newPrediction("", 0.9), 0, 0, scaling.ErrNoSkill},
		"of a skill that is no number": {newPrediction("NaN", 0.9), 0, 0, scaling.ErrNoSkill},
		"a percentile":                 {percentile, 0, 0.9, nil},
		"of gocrane":                   {ofGocrane, 0, 0.9, nil},
		"of gocrane, over":             {ofGocrane, 2 * time.Hour, 0, scaling.ErrOutdated},
		"several series":               {newPrediction("0.5", 1, 2), 0, 0, ErrSeveralSeries},
		"no series":                    {newPrediction("0.5"), 0, 0, ErrNotReady},
		"NaN":                          {newPrediction("0.5", math.NaN()), 0, 0, scaling.ErrNoMetric},
		"infinite":                     {newPrediction("0.5", math.Inf(1)), 0, 0, scaling.ErrNoMetric},
		"no number":                    {broken, 0, 0, scaling.ErrNoMetric},
		"empty":                        {&predictionv1alpha1.TimeSeriesPrediction{}, 0, 0, ErrNotReady},
	} {
		got, err := ActionableForecast(c.tsp, "resource.cpu", noon().Add(c.after))
		if got.Value != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v; want %v, %v", name, got, err, c.want, c.err)
		}
	}

	if _, err := ActionableForecast(newPrediction("0.5", 1), "resource.memory", noon()); !errors.Is(err, ErrNotReady) {
		t.Errorf("ActionableForecast of another metric returned error %v, want %v", err, ErrNotReady)
	}
}

// TestActionableForecast_Freshness checks that the age of the samples is compared with their step, not with the window.
func TestActionableForecast_Freshness(t *testing.T) {
	hourly := predictionv1alpha1.Algorithm{
		AlgorithmType: predictionv1alpha1.AlgorithmTypePercentile, Percentile: &predictionv1alpha1.Percentile{SampleInterval: "1h"},
	}
	dsp := predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypeDSP, DSP: &predictionv1alpha1.DSP{SampleInterval: "3600s"}}
	for name, c := range map[string]struct {
		algorithm predictionv1alpha1.Algorithm
		window    int32
		age       time.Duration
		outdated  bool
	}{
		"hourly samples":                       {hourly, 3600, 119 * time.Minute, false},
		"hourly samples and a short window":    {hourly, 600, 119 * time.Minute, false},
		"hourly samples of dsp":                {dsp, 3600, 119 * time.Minute, false},
		"hourly samples that are old":          {hourly, 3600, 5 * time.Hour, true},
		"samples of a minute":                  {predictionv1alpha1.Algorithm{}, 3600, 30 * time.Minute, false},
		"samples of a minute that are old":     {predictionv1alpha1.Algorithm{}, 3600, 2 * time.Hour, true},
		"a long window makes them no younger":  {predictionv1alpha1.Algorithm{}, 86400, 5 * time.Hour, true},
		"an interval that cannot be read":      {predictionv1alpha1.Algorithm{DSP: &predictionv1alpha1.DSP{SampleInterval: "soon"}}, 3600, 2 * time.Hour, true},
		"an interval of another algorithm":     {predictionv1alpha1.Algorithm{DSP: dsp.DSP}, 3600, 2 * time.Hour, true},
		"an interval longer than an algorithm": {predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypePercentile, Percentile: &predictionv1alpha1.Percentile{SampleInterval: "30d"}}, 3600, 9 * time.Hour, true},
	} {
		tsp := newPrediction("0.5", 1)
		tsp.Spec.PredictionWindowSeconds = c.window
		tsp.Spec.PredictionMetrics[0].Algorithm = c.algorithm
		sampled := metav1.NewTime(noon().Add(-c.age))
		tsp.Status.PredictionMetrics[0].LastSampleTime = &sampled

		_, err := ActionableForecast(tsp, "resource.cpu", noon())
		if got := errors.Is(err, scaling.ErrOutdated); got != c.outdated || err != nil && !got {
			t.Errorf("%s: ActionableForecast of samples of %s before = %v, want out of date: %v", name, c.age, err, c.outdated)
		}
	}
}

func TestAmountKeepsPrecision(t *testing.T) {
	for _, c := range []struct {
		value float64
		want  string
	}{
		{0.9, "900m"},
		{1.9, "1900m"},
		{0.0001, "1m"},
		{2, "2"},
		{0, "0"},
		{-1, "0"},
		{math.NaN(), "0"},
		{3e9, "3G"},
		{0.1 + 0.2, "300m"},
		{1e18, "1E"},
		{math.Inf(1), "4611686018427387904"},
	} {
		if got := NewQuantity(c.value); got.String() != c.want {
			t.Errorf("%v is %s, want %s", c.value, got.String(), c.want)
		}
	}
}

func TestParseKey(t *testing.T) {
	key := Key{TargetKind: "Deployment", TargetName: "web", TargetNamespace: "shop", Identifier: "resource.cpu"}
	got, err := ParseKey(labels.SelectorFromSet(key.MatchLabels()))
	if err != nil || got != key {
		t.Errorf("ParseKey = %+v, error %v, want %+v", got, err, key)
	}

	for _, text := range []string{
		"", "targetKind=Deployment", "targetKind=Deployment,targetName=web,targetNamespace=shop",
		"targetKind=Deployment,targetName=web,targetNamespace=shop,resourceIdentifier!=cron",
		"targetKind=Deployment,targetName in (a,b),targetNamespace=shop,resourceIdentifier=cron",
		"targetKind=Deployment,targetName=web,targetNamespace=shop,resourceIdentifier=cron,more=x",
	} {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}

		if k, err := ParseKey(s); err == nil {
			t.Errorf("ParseKey(%q) = %+v, want an error", text, k)
		}
	}

	if _, err := ParseKey(labels.Nothing()); err == nil {
		t.Error("ParseKey of a selector that selects nothing returned no error, want one")
	}
}

func TestKey_Selects(t *testing.T) {
	key := Key{TargetKind: "Deployment", TargetName: "web", TargetNamespace: "shop", Identifier: "resource.cpu"}
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}

	e.Namespace = "shop"
	e.Spec.ScaleTargetRef.Kind = "Deployment"
	e.Spec.ScaleTargetRef.Name = "web"
	if !key.SelectsAutoscaler(e) {
		t.Error("SelectsAutoscaler of its own autoscaler = false, want true")
	}

	e.Namespace = "other"
	if key.SelectsAutoscaler(e) || key.SelectsPrediction(newPrediction("1", 1)) {
		t.Error("SelectsAutoscaler or SelectsPrediction of another object = true, want false")
	}
}

func TestCron(t *testing.T) {
	two := int32(2)
	shanghai := "Asia/Shanghai"
	nowhere := "Asia/Atlantis"
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	e.Spec.MinReplicas = &two

	e.Spec.Crons = []autoscalingv1alpha1.CronSpec{
		{CronName: "utc", Start: "0 12 * * *", End: "0 13 * * *", TargetReplicas: 5},
		{CronName: "far", Start: "0 22 * * *", End: "0 23 * * *", TimeZone: &shanghai, TargetReplicas: 7},
		{CronName: "lost", Start: "0 0 * * *", End: "0 23 * * *", TimeZone: &nowhere, TargetReplicas: 50},
		{CronName: "local", Start: "0 6 * * *", End: "0 7 * * *", TimeZone: new(LocalZone), TargetReplicas: 9},
	}

	for hour, want := range map[int]int32{0: 9, 1: 2, 11: 2, 12: 5, 13: 2, 14: 7, 15: 2} {
		if got := CronReplicas(e, &Zones{Local: time.FixedZone("six ahead", 6*3600)}, time.Date(2026, 5, 4, hour, 30, 0, 0, time.UTC)); got != want {
			t.Errorf("at %d:30 UTC %d, want %d", hour, got, want)
		}
	}

	// gocrane evaluates schedules without a zone in the local one.
	place, err := time.LoadLocation(shanghai)
	if err != nil {
		t.Fatal(err)
	}

	if got := CronReplicas(e, &Zones{Default: place}, time.Date(2026, 5, 4, 4, 30, 0, 0, time.UTC)); got != 5 {
		t.Errorf("at noon in Shanghai %d, want 5", got)
	}

	_, failed := CronWindows(e, &Zones{})
	if len(failed) != 1 || !strings.Contains(failed[2].Error(), nowhere) {
		t.Errorf("errors %v, want one of crons[2] with %q", failed, nowhere)
	}
}

// withChoice adds a choice of the ledger to the forecast of tsp.
func withChoice(t *predictionv1alpha1.TimeSeriesPrediction, choice *predictionv1alpha1.ScalingChoice) *predictionv1alpha1.TimeSeriesPrediction {
	t.Spec.PredictionMetrics[0].Scaling = &predictionv1alpha1.ScalingPlant{PodCapacity: "1", Target: "0.7", LagSeconds: 105, StabilizationSeconds: 300}
	t.Status.PredictionMetrics[0].Scaling = choice
	return t
}

// TestPredictionByAccount checks that the value is computed from the lead time and the chosen fill.
func TestPredictionByAccount(t *testing.T) {
	choice := func(edit func(*predictionv1alpha1.ScalingChoice)) *predictionv1alpha1.ScalingChoice {
		c := &predictionv1alpha1.ScalingChoice{Use: true, Quantile: "0.8", Fill: "0.85", LeadSeconds: 180, Why: "it paid"}
		edit(c)
		return c
	}

	good := func() *predictionv1alpha1.ScalingChoice { return choice(func(*predictionv1alpha1.ScalingChoice) {}) }
	late := withChoice(newPrediction("0.5", 0.9), good())
	late.Status.PredictionMetrics[0].Prediction[0].Samples[4].Value = "9" // after the lead time
	soon := withChoice(newPrediction("0.5", 0.9), good())

	soon.Status.PredictionMetrics[0].Prediction[0].Samples[2].Value = "1.7"
	named := withChoice(newPrediction("0.5", 0.9), nil)
	named.Spec.PredictionMetrics[0].Algorithm.AlgorithmType = predictionv1alpha1.AlgorithmTypeDSP
	for name, c := range map[string]struct {
		tsp  *predictionv1alpha1.TimeSeriesPrediction
		want float64
		err  error
	}{
		"as it is":                   {withChoice(newPrediction("0.5", 0.85), good()), 0.7, nil},
		"a peak within the lead":     {soon, 1.4, nil},
		"a peak beyond it":           {late, 0.9 * 0.7 / 0.85, nil},
		"a named algorithm has none": {named, 0.9, nil},
		"not worth it":               {withChoice(newPrediction("0.5", 0.9), &predictionv1alpha1.ScalingChoice{LeadSeconds: 180, Why: "learning"}), 0, ErrNotWorthwhile},
		"nothing chosen yet":         {withChoice(newPrediction("0.5", 0.9), nil), 0, ErrNotReady},
		"no skill, but a ledger":     {withChoice(newPrediction("0.05", 0.85), good()), 0.7, nil},
		"a fill that is none":        {withChoice(newPrediction("0.5", 0.9), choice(func(c *predictionv1alpha1.ScalingChoice) { c.Fill = "NaN" })), 0, scaling.ErrNoMetric},
		"a fill of nothing":          {withChoice(newPrediction("0.5", 0.9), choice(func(c *predictionv1alpha1.ScalingChoice) { c.Fill = "0" })), 0, scaling.ErrNoMetric},
		"a negative lead time":       {withChoice(newPrediction("0.5", 0.9), choice(func(c *predictionv1alpha1.ScalingChoice) { c.LeadSeconds = -5 })), 0, scaling.ErrOutdated},
	} {
		f, err := ActionableForecast(c.tsp, "resource.cpu", noon())
		if math.Abs(f.Value-c.want) > 1e-9 || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, f.Value, err, c.want, c.err)
		}
		if err == nil && f.Reason == "" {
			t.Errorf("%s: the forecast has no reason, want one", name)
		}
	}
}
