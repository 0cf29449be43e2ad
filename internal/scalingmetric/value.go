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

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/pkg/scaling"
)

// Why a prediction takes no part, beside scaling.ErrOutdated, scaling.ErrNoSkill and scaling.ErrNoMetric.
var (
	// ErrNotReady means that there is no forecast of a metric yet.
	ErrNotReady = errors.New("there is no forecast yet")
	// ErrSeveralSeries means that a metric is forecast as several series, of which none is the metric.
	ErrSeveralSeries = errors.New("the query gives several series")
)

// Forecast is a value of MetricPrediction.
type Forecast struct {
	// Value is the highest value of the coming window, in the unit of the metric.
	Value float64
	// Made is when it was forecast.
	Made time.Time
	// Until is the end of the forecast: from then on it is out of date.
	Until time.Time
}

// Prediction returns the forecast of one metric of a TimeSeriesPrediction as of now. The error says in a sentence why there is
// none that may be acted on.
func Prediction(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string, now time.Time) (Forecast, error) {
	m := find(tsp, identifier)
	switch {
	case m == nil:
		return Forecast{}, ErrNotReady
	case len(m.Prediction) > 1:
		return Forecast{}, fmt.Errorf("%w (%d): aggregate it, for example with sum()", ErrSeveralSeries, len(m.Prediction))
	case len(m.Prediction) == 0:
		return Forecast{}, because(ErrNotReady, m.Reason)
	}
	points, err := pointsOf(m.Prediction[0].Samples)
	if err != nil {
		return Forecast{}, err
	}
	window := time.Duration(tsp.Spec.PredictionWindowSeconds) * time.Second
	peak, err := scaling.Peak(points, now, window)
	if err != nil {
		return Forecast{}, err //nolint:wrapcheck // It is a sentence about the forecast.
	}
	if m.UpdateTime != nil && m.LastSampleTime != nil && m.UpdateTime.Sub(m.LastSampleTime.Time) > window {
		return Forecast{}, fmt.Errorf("the newest sample is of %s: %w", m.LastSampleTime.UTC().Format(time.RFC3339), scaling.ErrOutdated)
	}
	if err := checkSkill(tsp, m); err != nil {
		return Forecast{}, err
	}
	out := Forecast{Value: peak, Until: points[len(points)-1].At}
	if m.UpdateTime != nil {
		out.Made = m.UpdateTime.Time
	}
	return out, nil
}

func find(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) *predictionv1alpha1.PredictionMetricStatus {
	for i := range tsp.Status.PredictionMetrics {
		if m := &tsp.Status.PredictionMetrics[i]; m.ResourceIdentifier == identifier {
			return m
		}
	}
	return nil
}

// checkSkill lets pass what is better than a constant. A percentile is a constant, and whoever asks for one wants it.
func checkSkill(tsp *predictionv1alpha1.TimeSeriesPrediction, m *predictionv1alpha1.PredictionMetricStatus) error {
	for i := range tsp.Spec.PredictionMetrics {
		spec := &tsp.Spec.PredictionMetrics[i]
		if spec.ResourceIdentifier == m.ResourceIdentifier && spec.Algorithm.AlgorithmType == predictionv1alpha1.AlgorithmTypePercentile {
			return nil
		}
	}
	if m.Skill == "" {
		return because(fmt.Errorf("%w: the past is too short to tell", scaling.ErrNoSkill), m.Reason)
	}
	skill, err := strconv.ParseFloat(m.Skill, 64)
	if err != nil || !(skill >= scaling.MinSkill) {
		return because(fmt.Errorf("%w: it is %s, and less than %v is not acted on", scaling.ErrNoSkill, m.Skill, scaling.MinSkill), m.Reason)
	}
	return nil
}

func because(err error, reason string) error {
	if reason == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, reason)
}

func pointsOf(samples []predictionv1alpha1.Sample) ([]scaling.Point, error) {
	out := make([]scaling.Point, len(samples))
	for i, s := range samples {
		v, err := strconv.ParseFloat(s.Value, 64)
		if err != nil {
			return nil, fmt.Errorf("the forecast holds %q, which is no number: %w", s.Value, scaling.ErrNoMetric)
		}
		out[i] = scaling.Point{At: time.Unix(s.Timestamp, 0), Value: v}
	}
	return out, nil
}

// Amount writes an amount for the metrics API: to the thousandth, rounded up, so that 0.9 of a core is 900m and nothing that is
// more than nothing becomes nothing.
func Amount(v float64) resource.Quantity {
	const most = float64(math.MaxInt64) / 2
	switch {
	case !(v > 0):
		return *resource.NewMilliQuantity(0, resource.DecimalSI)
	case v*1000 < most:
		// What is whole but for the last bits of a product is not a thousandth more.
		const slack = 1e-6
		return *resource.NewMilliQuantity(max(1, int64(math.Ceil(v*1000-slack))), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(math.Min(math.Ceil(v), most)), resource.DecimalSI)
}

// Windows reads the cron schedules of an autoscaler. Those that cannot be followed are left out; the error of each stands under
// its index. local is the place of schedules that name no time zone; nil for UTC.
func Windows(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, local *time.Location) ([]scaling.CronWindow, map[int]error) {
	var out []scaling.CronWindow
	failed := map[int]error{}
	for i := range ehpa.Spec.Crons {
		c := &ehpa.Spec.Crons[i]
		place, err := placeOf(c.TimeZone, local)
		if err != nil {
			failed[i] = err
			continue
		}
		w, err := scaling.NewCronWindow(c.CronName, string(c.Start), string(c.End), place, c.TargetReplicas)
		if err != nil {
			failed[i] = err
			continue
		}
		out = append(out, w)
	}
	return out, failed
}

func placeOf(name *string, local *time.Location) (*time.Location, error) {
	if name == nil || *name == "" {
		if local == nil {
			return time.UTC, nil
		}
		return local, nil
	}
	if *name == "Local" {
		return nil, errors.New(`timezone "Local": want a name of the IANA database, such as Asia/Shanghai`)
	}
	place, err := time.LoadLocation(*name)
	if err != nil {
		return nil, fmt.Errorf("timezone %q: %w", *name, err)
	}
	return place, nil
}

// Cron returns the value of MetricCron for an autoscaler: replicas.
func Cron(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, local *time.Location, now time.Time) int32 {
	least := int32(1)
	if ehpa.Spec.MinReplicas != nil {
		least = *ehpa.Spec.MinReplicas
	}
	windows, _ := Windows(ehpa, local)
	return scaling.CronReplicas(windows, least, now)
}
