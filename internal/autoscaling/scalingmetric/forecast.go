// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/units"
)

// Reasons why a forecast is not usable, beside scaling.ErrOutdated, scaling.ErrNoSkill and scaling.ErrNoMetric.
var (
	// ErrNotReady means that a metric has no forecast yet.
	ErrNotReady = errors.New("there is no forecast yet")
	// ErrSeveralSeries means that the query of a metric returns several series, of which none is the metric.
	ErrSeveralSeries = errors.New("the query returns several series")
	// ErrNotWorthwhile means that, on the history of the metric, scaling by the forecast costs more than it spares.
	ErrNotWorthwhile = errors.New("scaling by it costs more on past days than it avoids")
)

// Forecast is one value of MetricPrediction.
type Forecast struct {
	// Value is the value that an HPA reads, in the unit of the metric; see ActionableForecast.
	Value float64
	// CreatedAt is when the forecast was made.
	CreatedAt time.Time
	// ExpiresAt is the end of the forecast.
	ExpiresAt time.Time
	// Window is the time span that Value is the maximum of.
	Window time.Duration
	// Reason describes which part of the forecast Value is.
	Reason string
}

// ActionableForecast returns the forecast of one metric of a TimeSeriesPrediction as of now. Its error is the reason why no forecast
// is usable.
//
// Where a ledger rates the forecast, the value is the maximum of the chosen quantile within the lead time, converted to the load at
// which an HPA with the target of the metric requests pods with the chosen fill (scaling.Plant.EquivalentLoad). Otherwise it is the
// maximum of the prediction window.
func ActionableForecast(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string, now time.Time) (Forecast, error) {
	m, window, err := latestForecast(tsp, identifier)
	if err != nil {
		return Forecast{}, err
	}

	spec := MetricSpec(tsp, identifier)
	part, err := selectForecast(spec, m, window)
	if err != nil {
		return Forecast{}, err
	}

	samples := m.Prediction[0].Samples
	peak, err := peakValue(samples, now, part.window)
	if err != nil {
		return Forecast{}, err
	}

	// The reason against a forecast matters only for one that is otherwise complete.
	if part.rejection != nil {
		return Forecast{}, part.rejection
	}

	out := Forecast{
		Value:     peak * part.factor,
		ExpiresAt: time.Unix(samples[len(samples)-1].Timestamp, 0),
		Window:    part.window,
		Reason:    part.reason,
	}

	if m.UpdateTime != nil {
		out.CreatedAt = m.UpdateTime.Time
	}

	return out, nil
}

// PeakForecast returns the maximum of the prediction window of one metric of a TimeSeriesPrediction as of now, regardless of its
// rating, for reservations of expected usage. Its error is the reason why there is none.
func PeakForecast(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string, now time.Time) (Forecast, error) {
	m, window, err := latestForecast(tsp, identifier)
	if err != nil {
		return Forecast{}, err
	}

	samples := m.Prediction[0].Samples
	peak, err := peakValue(samples, now, window)
	if err != nil {
		return Forecast{}, err
	}

	out := Forecast{
		Value:     peak,
		ExpiresAt: time.Unix(samples[len(samples)-1].Timestamp, 0),
		Window:    window,
		Reason:    "the highest of the next " + window.String(),
	}

	if m.UpdateTime != nil {
		out.CreatedAt = m.UpdateTime.Time
	}

	return out, nil
}

// latestForecast returns the status of a metric with exactly one series that is not outdated, and the prediction window.
func latestForecast(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) (*predictionv1alpha1.PredictionMetricStatus, time.Duration, error) {
	m := metricStatus(tsp, identifier)
	switch {
	case m == nil:
		return nil, 0, ErrNotReady
	case len(m.Prediction) > 1:
		return nil, 0, fmt.Errorf("%w (%d): aggregate it, for example with sum()", ErrSeveralSeries, len(m.Prediction))
	case len(m.Prediction) == 0:
		return nil, 0, withReason(ErrNotReady, m.Reason)
	}

	window := tsp.Spec.Window()
	if m.UpdateTime != nil && m.LastSampleTime != nil && m.UpdateTime.Sub(m.LastSampleTime.Time) > maxSampleAge(MetricSpec(tsp, identifier)) {
		return nil, 0, fmt.Errorf("the newest sample is of %s: %w", m.LastSampleTime.UTC().Format(time.RFC3339), scaling.ErrOutdated)
	}

	return m, window, nil
}

const (
	// minSampleAge is the age up to which the newest sample of a forecast is not old, whatever the step.
	minSampleAge = time.Hour
	// maxSampleSteps is the same in steps: the newest sample may be two steps old when it is read, and reads are a step apart.
	maxSampleSteps = 4
	// longestStep is the longest step of samples.
	longestStep = time.Hour
)

// maxSampleAge returns the age of the newest sample, when the forecast was made, above which the forecast is out of date.
func maxSampleAge(spec *predictionv1alpha1.PredictionMetric) time.Duration {
	if spec == nil {
		return minSampleAge
	}

	var interval predictionv1alpha1.Duration
	switch a := spec.Algorithm; {
	case a.AlgorithmType == predictionv1alpha1.AlgorithmTypeDSP && a.DSP != nil:
		interval = a.DSP.SampleInterval
	case a.AlgorithmType == predictionv1alpha1.AlgorithmTypePercentile && a.Percentile != nil:
		interval = a.Percentile.SampleInterval
	}

	step, err := units.ParseDuration(string(interval))
	if err != nil {
		return minSampleAge // The interval is absent, that is a minute, or refused by the forecast.
	}

	return max(minSampleAge, maxSampleSteps*min(step, longestStep))
}

// forecastSelection is the usable part of a forecast.
type forecastSelection struct {
	window time.Duration
	factor float64
	reason string
	// rejection is the reason why no part is usable.
	rejection error
}

// selectForecast returns the part that the ledger chose, or the whole window without a ledger.
func selectForecast(spec *predictionv1alpha1.PredictionMetric, m *predictionv1alpha1.PredictionMetricStatus, window time.Duration) (forecastSelection, error) {
	out := forecastSelection{window: window, factor: 1}
	if spec == nil || spec.Scaling == nil || !usesLedger(spec) {
		out.reason = "the highest of the next " + window.String()
		out.rejection = checkSkill(spec, m)
		return out, nil
	}

	choice := m.Scaling
	if choice == nil {
		return out, fmt.Errorf("%w with a rating", ErrNotReady)
	}
	if !choice.Use { // Such a choice has no lead: the whole window says whether the forecast is out of date.
		out.rejection = withReason(ErrNotWorthwhile, choice.Why)
		return out, nil
	}

	out.window = time.Duration(choice.LeadSeconds) * time.Second
	target, errTarget := strconv.ParseFloat(string(spec.Scaling.Target), 64)

	fill, errFill := strconv.ParseFloat(choice.Fill, 64)
	if errTarget != nil || errFill != nil || !(target > 0 && target <= 1) || !(fill > 0 && fill <= 1) {
		return out, fmt.Errorf("the choice is a target of %q and pods filled to %q: %w", spec.Scaling.Target, choice.Fill, scaling.ErrNoMetric)
	}

	out.factor = scaling.Plant{Capacity: 1, Target: target}.EquivalentLoad(scaling.Level{Utilization: fill}, 1)
	out.reason = fmt.Sprintf("the %s quantile of the next %s, in pods filled to %.0f %%: %s", choice.Quantile, out.window, 100*fill, choice.Why)
	return out, nil
}

// usesLedger reports whether a ledger rates the forecast of a metric. With an explicit algorithm none does.
func usesLedger(spec *predictionv1alpha1.PredictionMetric) bool {
	return spec.Algorithm.AlgorithmType == "" || spec.Algorithm.AlgorithmType == predictionv1alpha1.AlgorithmTypeAuto
}

// MetricSpec returns the metric of a prediction with the identifier, in full or as LabelValue encodes it; nil if there is none.
func MetricSpec(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) *predictionv1alpha1.PredictionMetric {
	return findMetric(tsp.Spec.PredictionMetrics, identifier, func(m *predictionv1alpha1.PredictionMetric) string { return m.ResourceIdentifier })
}

func metricStatus(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) *predictionv1alpha1.PredictionMetricStatus {
	return findMetric(tsp.Status.PredictionMetrics, identifier, func(m *predictionv1alpha1.PredictionMetricStatus) string { return m.ResourceIdentifier })
}

// findMetric prefers the metric with exactly this identifier: another one may be encoded alike.
func findMetric[T any](metrics []T, identifier string, nameOf func(*T) string) *T {
	for i := range metrics {
		if nameOf(&metrics[i]) == identifier {
			return &metrics[i]
		}
	}

	for i := range metrics {
		if sameText(nameOf(&metrics[i]), identifier) {
			return &metrics[i]
		}
	}

	return nil
}

// checkSkill rejects forecasts that no ledger rates and that are no better than a constant. The percentile algorithm is exempt: its forecast is a constant by
// design. So are those of gocrane, which have no update time: they hold replicas until Crane's own forecast replaces them.
func checkSkill(spec *predictionv1alpha1.PredictionMetric, m *predictionv1alpha1.PredictionMetricStatus) error {
	if spec != nil && spec.Algorithm.AlgorithmType == predictionv1alpha1.AlgorithmTypePercentile {
		return nil
	}

	if m.Skill == "" && m.UpdateTime == nil {
		return nil
	}

	if m.Skill == "" {
		return withReason(fmt.Errorf("%w: the history is too short", scaling.ErrNoSkill), m.Reason)
	}

	skill, err := strconv.ParseFloat(m.Skill, 64)
	if err != nil || !(skill >= scaling.MinSkill) {
		return withReason(fmt.Errorf("%w: it is %s, and at least %v is required", scaling.ErrNoSkill, m.Skill, scaling.MinSkill), m.Reason)
	}

	return nil
}

func withReason(err error, reason string) error {
	if reason == "" {
		return err
	}

	return fmt.Errorf("%w (%s)", err, reason)
}

// peakValue returns the maximum of the samples from now to the end of a window. It parses only the samples in the window, a few of
// hundreds.
func peakValue(samples []predictionv1alpha1.Sample, now time.Time, window time.Duration) (float64, error) {
	from, to := scaling.IndexesInWindow(len(samples), func(i int) time.Time { return time.Unix(samples[i].Timestamp, 0) }, now, window)
	points := make([]scaling.Point, 0, to-from)
	for _, s := range samples[from:to] {
		v, err := strconv.ParseFloat(s.Value, 64)
		if err != nil {
			return 0, fmt.Errorf("the forecast holds %q, which is not a number: %w", s.Value, scaling.ErrNoMetric)
		}

		points = append(points, scaling.Point{At: time.Unix(s.Timestamp, 0), Value: v})
	}

	if len(points) == 0 && len(samples) > 0 {
		points = append(points, scaling.Point{At: time.Unix(samples[len(samples)-1].Timestamp, 0)}) // PeakInWindow reports when the forecast ended.
	}

	return scaling.PeakInWindow(points, now, window)
}

// NewQuantity encodes a value for the metrics API in thousandths, rounded up: 0.9 is 900m, and a positive value is never 0. A forecast below
// nothing is 0.
func NewQuantity(v float64) resource.Quantity {
	const limit = float64(math.MaxInt64) / 2
	if v*1000 >= limit {
		return *resource.NewQuantity(int64(math.Min(math.Ceil(v), limit)), resource.DecimalSI)
	}

	return *resource.NewMilliQuantity(max(0, scaling.Thousandths(v)), resource.DecimalSI)
}
