// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/units"
)

const (
	// windowsAhead is the number of windows in one write. The next write follows when less than one is left.
	windowsAhead = 2
	// maxSamples is the maximum number of samples in one object: at about 45 bytes each, a megabyte. Longer forecasts
	// are written at a coarser step, with the maximum of each step.
	maxSamples = 20_000
	// maxMessage is the maximum length of a condition message.
	maxMessage = 1024
	// maxQuery is the maximum length of a query in the reason of a metric: the spec has all of it, and an object has up to 100 of them.
	maxQuery = 200
)

// metricState is the observed state of one metric.
type metricState struct {
	identifier string
	key        predictor.Key
	// refused is the error if there is no request.
	refused error
	// emptyReason is the reason if the query has no series.
	emptyReason string
	status      predictor.Status
}

// statusBuilder computes the new status and whether it needs new forecasts.
type statusBuilder struct {
	tsp    *predictionv1alpha1.TimeSeriesPrediction
	now    time.Time
	window time.Duration
	// fresh means that the status is of the current generation of the spec.
	fresh bool
}

func newDecision(tsp *predictionv1alpha1.TimeSeriesPrediction, now time.Time) statusBuilder {
	ready := meta.FindStatusCondition(tsp.Status.Conditions, predictionv1alpha1.ConditionReady)
	return statusBuilder{
		tsp:    tsp,
		now:    now,
		window: tsp.Spec.Window(),
		fresh:  ready != nil && ready.ObservedGeneration == tsp.Generation,
	}
}

// published returns the current status of a metric; nil if there is none or it is of another generation. That of gocrane, which has no update time,
// holds replicas until there is a forecast of Crane, whatever the generation: a return to gocrane and back leaves the generation that Crane wrote.
func (d statusBuilder) published(identifier string) *predictionv1alpha1.PredictionMetricStatus {
	for i := range d.tsp.Status.PredictionMetrics {
		if m := &d.tsp.Status.PredictionMetrics[i]; m.ResourceIdentifier == identifier && (d.fresh || m.UpdateTime == nil) {
			return m
		}
	}

	return nil
}

// coversWindow reports whether each series of a metric is forecast to the end of the window.
func (d statusBuilder) coversWindow(m *predictionv1alpha1.PredictionMetricStatus) bool {
	if m == nil || len(m.Prediction) == 0 {
		return false
	}

	end := d.now.Add(d.window).Truncate(time.Minute).Unix()
	for _, s := range m.Prediction {
		if len(s.Samples) == 0 || s.Samples[len(s.Samples)-1].Timestamp < end {
			return false
		}
	}

	return true
}

// needsForecast reports whether new forecasts have to be written: one ends too soon, a metric has become ready, or a
// forecast was computed from so little history that it should not be kept for a window.
func (d statusBuilder) needsForecast(metrics []metricState) bool {
	return slices.ContainsFunc(metrics, func(o metricState) bool {
		if o.status.State != predictor.Ready {
			return false
		}

		old := d.published(o.identifier)
		return !d.coversWindow(old) || old.UpdateTime == nil || d.historyDoubled(old, o.status.FirstSample)
	})
}

const (
	// newWorkloadAge is the age up to which a workload is new; its forecasts are renewed each time its history has
	// doubled, which is about ten times in the first day.
	newWorkloadAge = 24 * time.Hour
	// minRefresh is the minimum interval between two such forecasts.
	minRefresh = 5 * time.Minute
)

// historyDoubled reports whether the history has doubled since the forecast of a new workload.
func (d statusBuilder) historyDoubled(old *predictionv1alpha1.PredictionMetricStatus, first time.Time) bool {
	if old.UpdateTime == nil || first.IsZero() {
		return false
	}

	seen := old.UpdateTime.Sub(first)
	return seen < newWorkloadAge && d.now.Sub(old.UpdateTime.Time) >= max(minRefresh, seen)
}

// withoutNewForecast returns the status of a metric that keeps its forecast.
func (d statusBuilder) withoutNewForecast(o metricState) predictionv1alpha1.PredictionMetricStatus {
	out := predictionv1alpha1.PredictionMetricStatus{ResourceIdentifier: o.identifier}
	if old := d.published(o.identifier); old != nil {
		out = *old.DeepCopy()
	}

	out.Ready = d.coversWindow(&out)
	switch {
	case o.refused != nil:
		// A forecast of an earlier spec is dropped, and there is none for this one.
		out = predictionv1alpha1.PredictionMetricStatus{ResourceIdentifier: o.identifier, Reason: sentence(o.refused.Error())}
	case out.Ready:
	case o.status.State == predictor.Pending:
		out.Reason = "the history is being read"
	case o.status.State == predictor.Empty && o.status.Unusable > 0:
		out.Reason = sentence(fmt.Sprintf("the query has %d series, whose values are negative, infinite or above %g: none is an amount that can be forecast",
			o.status.Unusable, forecast.MaxValue))
	case o.status.State == predictor.Empty:
		out.Reason = o.emptyReason
	case o.status.State == predictor.Failed:
		out.Reason = sentence("reading the history failed: " + errorText(o.status.Err))
	default: // The reason of before is that of a forecast which has ended.
		out.Reason = "no forecast covers the window: no series of the query has recent samples"
	}

	return out
}

// withNewForecast returns the status of a metric with a new forecast. advice evaluates scaling by it; nil for none.
func (d statusBuilder) withNewForecast(o metricState, all []predictor.SeriesForecast, advice *predictor.Advice, budget int) predictionv1alpha1.PredictionMetricStatus {
	out := predictionv1alpha1.PredictionMetricStatus{ResourceIdentifier: o.identifier, Reason: reasonOf(all, o.status.Dropped)}
	now := metav1.NewTime(d.now)
	out.UpdateTime = &now

	end := d.now.Add(windowsAhead * d.window)
	for _, f := range all {
		f, value := publishedForecast(f, advice)
		out.Prediction = append(out.Prediction, predictionv1alpha1.MetricTimeSeries{
			Labels: labelsOf(f.Labels), Samples: samplesOf(f, value, d.now, end, budget/len(all)),
		})

		if last := metav1.NewTime(f.LastSample); out.LastSampleTime == nil || last.Before(out.LastSampleTime) {
			out.LastSampleTime = &last
		}
	}

	out.Skill, out.SkillOrigins = skillOf(all)
	if advice != nil {
		out.Scaling = choiceOf(*advice)
	}

	out.Ready = d.coversWindow(&out)
	if !out.Ready {
		out.Reason = sentence("the forecast ends before the window does, because samples are missing: " + out.Reason)
	}

	return out
}

// skillOf returns the lowest skill of the series and the least number of origins; empty if the skill of one is unknown.
func skillOf(all []predictor.SeriesForecast) (string, int32) {
	lowest := math.Inf(1)
	origins := math.MaxInt32
	for _, f := range all {
		if math.IsNaN(f.Skill) || math.IsInf(f.Skill, 0) {
			return "", 0
		}

		lowest = math.Min(lowest, f.Skill)
		origins = min(origins, f.Origins)
	}

	return strconv.FormatFloat(lowest, 'f', 2, 64), int32(origins)
}

func labelsOf(labels map[string]string) []predictionv1alpha1.Label {
	var out []predictionv1alpha1.Label
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, predictionv1alpha1.Label{Name: name, Value: labels[name]})
	}

	return out
}

// samplesOf returns the published values from the step that contains now to the first one that begins at end or later, so that samples cover the
// time to end whatever the step is.
func samplesOf(f predictor.SeriesForecast, published func(forecast.Quantiles) float64, now, end time.Time, limit int) []predictionv1alpha1.Sample {
	first := max(0, int(now.Sub(f.Start)/f.Step))
	last := min(len(f.Values)-1, int((end.Sub(f.Start)+f.Step-1)/f.Step))
	if last < first {
		return nil
	}

	stride := (last-first)/max(1, limit-2) + 1
	out := make([]predictionv1alpha1.Sample, 0, (last-first)/stride+2)
	add := func(i int, v float64) {
		at := f.Start.Add(time.Duration(i) * f.Step).Unix()
		out = append(out, predictionv1alpha1.Sample{Value: strconv.FormatFloat(v, 'f', 5, 64), Timestamp: at})
	}

	for i := first; i <= last; i += stride {
		value := 0.0
		for _, q := range f.Values[i:min(i+stride, last+1)] {
			value = math.Max(value, published(q))
		}
		add(i, value)
	}

	// The last sample is stamped with the end of the window, so that a lookup at the end finds it.
	if (last-first)%stride != 0 {
		add(last, published(f.Values[last]))
	}

	return out
}

// reasonOf returns why a forecast fell back, or else its season.
func reasonOf(all []predictor.SeriesForecast, dropped int) string {
	f := all[0]
	for _, candidate := range all {
		if candidate.Reason != "" {
			f = candidate
			break
		}
	}

	text := f.Reason
	if text == "" {
		text = f.Model
		if f.Period > 0 {
			text += fmt.Sprintf("; %d periods of %s", f.Periods, units.FormatDuration(f.Period))
		}
	}

	if len(all) > 1 {
		text += fmt.Sprintf(" (%d series)", len(all))
	}
	if dropped > 0 {
		text += fmt.Sprintf("; %d more series are left out: the maximum is %d per metric", dropped, len(all))
	}

	return sentence(text)
}

// conditions returns the conditions of the object from the status of its metrics. written means that forecasts are
// written anyway, so a message may change without a transition.
func (d statusBuilder) conditions(metrics []predictionv1alpha1.PredictionMetricStatus, seen []metricState, written bool) []metav1.Condition {
	out := slices.Clone(d.tsp.Status.Conditions)
	for _, c := range []metav1.Condition{readyCondition(metrics), staleCondition(seen)} {
		old := meta.FindStatusCondition(out, c.Type)
		stays := old != nil && old.Status == c.Status && old.Reason == c.Reason && old.ObservedGeneration == d.tsp.Generation
		if stays && (c.Type == predictionv1alpha1.ConditionStale || c.Status == metav1.ConditionTrue && !written) {
			c.Message = old.Message
		}

		c.ObservedGeneration = d.tsp.Generation
		c.LastTransitionTime = metav1.NewTime(d.now)
		meta.SetStatusCondition(&out, c)
	}

	return out
}

func readyCondition(metrics []predictionv1alpha1.PredictionMetricStatus) metav1.Condition {
	c := metav1.Condition{Type: predictionv1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	ready := 0
	var all, missing []string

	// The message names what is missing, or the reason of each metric if all are ready.
	for _, m := range metrics {
		text := m.ResourceIdentifier + ": " + m.Reason
		all = append(all, text)

		if m.Ready {
			ready++
		} else {
			missing = append(missing, text)
		}
	}

	switch {
	case ready == len(metrics) && ready > 0:
		c.Status = metav1.ConditionTrue
		c.Reason = predictionv1alpha1.ReasonPredictSucceed
		c.Message = join(all)
	case ready > 0:
		c.Reason = predictionv1alpha1.ReasonPredictPartial
		c.Message = "metrics without a forecast: " + join(missing)
	default:
		c.Reason = predictionv1alpha1.ReasonPredictFailed
		c.Message = join(missing)
	}

	return c
}

// staleCondition returns the condition for missing samples, of the metric that has lacked them longest.
func staleCondition(seen []metricState) metav1.Condition {
	c := metav1.Condition{Type: predictionv1alpha1.ConditionStale, Status: metav1.ConditionFalse, Reason: predictionv1alpha1.ReasonUpToDate}
	var stale []metricState
	for _, o := range seen {
		if o.status.Stale {
			stale = append(stale, o)
		}
	}

	if len(stale) == 0 {
		return c
	}

	// Metrics whose reads fail come first: their error says why samples are missing.
	oldest := slices.MinFunc(stale, func(a, b metricState) int {
		return cmp.Or(boolToInt(b.status.Err != nil)-boolToInt(a.status.Err != nil), a.status.LastSample.Compare(b.status.LastSample))
	})
	c.Status = metav1.ConditionTrue
	c.Reason = predictionv1alpha1.ReasonNoNewSamples
	c.Message = fmt.Sprintf("%s: no new samples since %s; the forecast starts there",
		oldest.identifier, oldest.status.LastSample.UTC().Format(time.RFC3339))

	if oldest.status.Err != nil {
		c.Reason = predictionv1alpha1.ReasonSourceFailed
		c.Message += ": " + errorText(oldest.status.Err)
	}

	c.Message = sentence(c.Message)
	return c
}

func boolToInt(b bool) int {
	if b {
		return 1
	}

	return 0
}

// errorText returns an error for the status of an object, which the users of its namespace read.
func errorText(err error) string {
	if err == nil {
		return "unknown"
	}

	return strings.ReplaceAll(metrics.PublicMessage(err), "\n", "; ")
}

func join(parts []string) string { return sentence(strings.Join(parts, "; ")) }

// sentence bounds a text to maxMessage.
func sentence(text string) string { return shorten(text, maxMessage) }

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}

	return strings.ToValidUTF8(text[:limit], "") + "..."
}
