// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/prediction/predictor"
)

// Metrics exports the forecasts and accuracy of existing TimeSeriesPredictions. The series of an object are removed
// with it.
type Metrics struct {
	accuracy        func(predictor.Key) predictor.Accuracy
	systemNamespace string

	mu      sync.Mutex
	objects map[types.NamespacedName][]metricSamples
}

// metricSamples is one metric of one object.
type metricSamples struct {
	identifier, algorithm           string
	kind, name, namespace           string
	key                             predictor.Key
	isAccepted                      bool
	lastSample                      time.Time
	forecast                        float64
	hasForecast, hasSample, isStale bool
	scaling                         *predictionv1alpha1.ScalingChoice
}

var (
	objectLabels   = []string{"namespace", "name", "resource_identifier"}
	wapeDesc       = prometheus.NewDesc("crane_prediction_wape_ratio", "Sum of absolute errors of the forecast median over the sum of the samples.", objectLabels, nil)
	coverageDesc   = prometheus.NewDesc("crane_prediction_coverage_ratio", "Share of samples at or below the forecast 0.95 quantile.", objectLabels, nil)
	skillDesc      = prometheus.NewDesc("crane_prediction_skill_ratio", "1 - loss / loss of a time-of-day quantile, by pinball loss at 0.95.", objectLabels, nil)
	sampleTimeDesc = prometheus.NewDesc("crane_prediction_last_sample_timestamp_seconds", "Time of the newest sample in the model.", objectLabels, nil)
	staleDesc      = prometheus.NewDesc("crane_prediction_stale", "1 if no new samples arrive.", objectLabels, nil)
	extraDesc      = prometheus.NewDesc("crane_scaling_ahead_extra_replicas_ratio", "Additional replica hours that scaling by the forecast caused on the past days, as a fraction of those of the HPA alone.", objectLabels, nil)
	sparedDesc     = prometheus.NewDesc("crane_scaling_ahead_spared_ratio", "Share of the time under capacity that scaling by the forecast avoided on the past days.", objectLabels, nil)
	inUseDesc      = prometheus.NewDesc("crane_scaling_ahead_used", "1 if the forecast scales the workload, 0 if its replicas would cost more than they avoid.", objectLabels, nil)
	// forecastDesc has gocrane's name and labels, but samples are not stamped with a future time.
	forecastDesc = prometheus.NewDesc("crane_prediction_tsp", "Forecast for the current time; the maximum of several series.",
		[]string{"targetKind", "targetName", "targetNamespace", "resourceIdentifier", "algorithm"}, nil)
)

// NewMetrics returns a collector. Objects in Crane's namespace may forecast targets elsewhere, and such without a namespace.
func NewMetrics(accuracy func(predictor.Key) predictor.Accuracy, systemNamespace string) *Metrics {
	return &Metrics{
		accuracy:        accuracy,
		systemNamespace: systemNamespace,
		objects:         map[types.NamespacedName][]metricSamples{},
	}
}

// observe stores the values of an object's status.
func (m *Metrics) observe(
	tsp *predictionv1alpha1.TimeSeriesPrediction, status predictionv1alpha1.TimeSeriesPredictionStatus, seen []metricState, now time.Time,
) {
	all := make([]metricSamples, len(seen))
	for i, o := range seen {
		sample := metricSamples{
			identifier: o.identifier,
			algorithm:  string(tsp.Spec.PredictionMetrics[i].Algorithm.AlgorithmType),
			key:        o.key,
			isAccepted: o.refused == nil,
			isStale:    o.status.Stale,
			lastSample: o.status.LastSample,
			hasSample:  !o.status.LastSample.IsZero(),
		}

		sample.algorithm = cmp.Or(sample.algorithm, string(predictionv1alpha1.AlgorithmTypeAuto))
		if ref := tsp.Spec.TargetRef; ref != nil {
			sample.kind = ref.Kind
			sample.name = ref.Name
			sample.namespace = ref.Namespace
		}

		sample.scaling = status.PredictionMetrics[i].Scaling
		sample.forecast, sample.hasForecast = forecastAt(status.PredictionMetrics[i], now)

		var exported bool
		sample.namespace, exported = workload.ExportedNamespace(tsp.Namespace, sample.namespace, m.systemNamespace)
		sample.hasForecast = sample.hasForecast && exported
		all[i] = sample
	}

	// The values are computed before the lock, which scrapes take too.
	m.mu.Lock()
	defer m.mu.Unlock()

	m.objects[types.NamespacedName{Namespace: tsp.Namespace, Name: tsp.Name}] = all
}

// forecastAt returns the maximum over the series of the first sample at or after now.
func forecastAt(m predictionv1alpha1.PredictionMetricStatus, now time.Time) (float64, bool) {
	best := 0.0
	ok := false
	for _, s := range m.Prediction {
		i, _ := slices.BinarySearchFunc(s.Samples, now.Unix(), func(x predictionv1alpha1.Sample, at int64) int { return cmp.Compare(x.Timestamp, at) })
		if i == len(s.Samples) {
			continue
		}

		v, err := strconv.ParseFloat(s.Samples[i].Value, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}

		best = math.Max(best, v)
		ok = true
	}

	return best, ok
}

func (m *Metrics) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.objects, name)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{wapeDesc, coverageDesc, skillDesc, sampleTimeDesc, staleDesc, extraDesc, sparedDesc, inUseDesc, forecastDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. If two objects forecast the same metric of the same target, gocrane's
// labels are equal, and only the first object by name is exported, of those in the namespace of the target if there are any.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	objects := maps.Clone(m.objects)
	m.mu.Unlock()

	names := slices.SortedFunc(maps.Keys(objects), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })

	var domestic, foreign []metricSamples
	for _, name := range names {
		identifiers := map[string]bool{}
		for _, sample := range objects[name] {
			if identifiers[sample.identifier] {
				continue // stored before the CRD rejected it
			}

			identifiers[sample.identifier] = true
			m.collect(ch, name, sample)

			if sample.namespace == name.Namespace {
				domestic = append(domestic, sample)
			} else {
				foreign = append(foreign, sample)
			}
		}
	}

	collectForecasts(ch, slices.Concat(domestic, foreign))
}

// collectForecasts exports the first forecast of each metric of a target.
func collectForecasts(ch chan<- prometheus.Metric, all []metricSamples) {
	seen := map[[5]string]bool{}
	for _, sample := range all {
		labels := [5]string{sample.kind, sample.name, sample.namespace, sample.identifier, sample.algorithm}
		if !sample.hasForecast || seen[labels] {
			continue
		}

		seen[labels] = true
		seriesguard.Send(ch, forecastDesc, prometheus.GaugeValue, sample.forecast, labels[:]...)
	}
}

func (m *Metrics) collect(ch chan<- prometheus.Metric, name types.NamespacedName, sample metricSamples) {
	gauge := func(d *prometheus.Desc, v float64) {
		if !math.IsNaN(v) {
			seriesguard.Send(ch, d, prometheus.GaugeValue, v, name.Namespace, name.Name, sample.identifier)
		}
	}

	// A refused metric has no series in the predictor.
	if !sample.isAccepted {
		return
	}

	gauge(staleDesc, float64(boolToInt(sample.isStale)))
	if sample.hasSample {
		gauge(sampleTimeDesc, float64(sample.lastSample.Unix()))
	}

	a := m.accuracy(sample.key)
	gauge(wapeDesc, a.WAPE)
	gauge(coverageDesc, a.Coverage)
	gauge(skillDesc, a.Skill)

	if s := sample.scaling; s != nil {
		gauge(inUseDesc, float64(boolToInt(s.Use)))
		gauge(extraDesc, ratio(s.ActualExtraReplicas))
		gauge(sparedDesc, ratio(s.ActualSparedTime))
	}
}

// ratio parses a number of a status; 0 where it is absent, NaN where it is none.
func ratio(text string) float64 {
	if text == "" {
		return 0
	}

	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}

	return v
}
