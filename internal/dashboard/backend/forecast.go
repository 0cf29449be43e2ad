// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

const (
	// forecastHistory is the history from which the band is computed; a week has each day of the week once. forecastShown is its end on the chart.
	forecastHistory = 7 * 24 * time.Hour
	forecastShown   = 2 * 24 * time.Hour
	forecastStep    = 5 * time.Minute
	// Quantiles of the band.
	bandLow, bandHigh = 0.5, 0.95
	forecastPoints    = 1200
)

// autoscalingView lists Crane's autoscalers and reads their forecasts.
type autoscalingView struct {
	*viewAccess
	history     *clusterHistory
	autoscalers *dashboard.Shared[contract.Autoscaling]
	// forecasts are the histories of the metrics of autoscalers.
	forecasts *dashboard.Cache[forecastKey, series.Series]
}

func newAutoscalingView(a *viewAccess, history *clusterHistory) *autoscalingView {
	v := &autoscalingView{viewAccess: a, history: history}
	v.autoscalers = shared(a, v.readAutoscalers, rowsTTL)
	v.forecasts = dashboard.NewCache(dashboard.Limits{
		Size:     maxHistories,
		TTL:      historyTTL,
		Timeout:  readTimeout,
		Patience: historyWait,
	}, a.Clock, v.readForecastHistory)

	return v
}

// Forecast implements dashboard.Backend.
func (v *autoscalingView) Forecast(ctx context.Context, namespace, name string) (contract.Forecast, error) {
	out := contract.Forecast{Origin: v.origin(), Metrics: []contract.ForecastMetric{}}
	if v.fromFiles() {
		return out, dashboard.NotServed("files have no autoscalers", "")
	}

	c, err := v.Personal.ObjectClient()
	if err != nil {
		return out, err
	}

	var ehpa autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &ehpa); err != nil {
		return out, unavailable(err)
	}

	out.Marks = cronMarks(&ehpa)
	var predictions predictionv1alpha1.TimeSeriesPredictionList
	if err := c.List(ctx, &predictions, client.InNamespace(namespace)); err != nil {
		return out, unavailable(err)
	}

	i := slices.IndexFunc(predictions.Items, func(p predictionv1alpha1.TimeSeriesPrediction) bool { return metav1.IsControlledBy(&p, &ehpa) })
	if i < 0 {
		return out, nil
	}

	// The published forecast is shown even if its history cannot be read; a note gives the reason.
	source, problem := v.history.openHistory(ctx)
	if problem == nil {
		out.Source += ", " + v.history.server().Name()
		out.WindowSeconds = int64(forecastHistory.Seconds())
	}

	f := forecastReader{
		view:       v,
		source:     source,
		ehpa:       &ehpa,
		prediction: &predictions.Items[i],
		now:        v.Clock.Now().Truncate(time.Minute),
	}

	for k := range f.prediction.Spec.PredictionMetrics {
		metric, replicas, err := f.read(ctx, &f.prediction.Spec.PredictionMetrics[k])
		problem = cmp.Or(problem, err)
		out.Metrics = append(out.Metrics, metric)
		out.Replicas = append(out.Replicas, replicas...)
	}

	if source != nil {
		target := contract.Target{Namespace: namespace, Kind: ehpa.Spec.ScaleTargetRef.Kind, Name: ehpa.Spec.ScaleTargetRef.Name}
		replicas, err := f.measuredReplicas(ctx, target)
		problem = cmp.Or(problem, err)
		out.Replicas = slices.Concat(replicas, highestReplicas(out.Replicas))
	}

	if problem != nil {
		out.Notes = append(out.Notes, "the history is incomplete: "+dashboard.FailureOf(problem).Body.Message)
	}

	return out, nil
}

// cronMarks returns the next start and end of each schedule.
func cronMarks(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) []contract.Mark {
	var out []contract.Mark
	for _, s := range ehpa.Status.Crons {
		if s.NextStart != nil {
			out = append(out, contract.Mark{At: s.NextStart.Unix(), Kind: "cron", Text: s.Name + " starts"})
		}
		if s.NextEnd != nil {
			out = append(out, contract.Mark{At: s.NextEnd.Unix(), Kind: "cron", Text: s.Name + " ends"})
		}
	}

	return out
}

// forecastReader reads the history and the forecast of the metrics of one autoscaler.
type forecastReader struct {
	view       *autoscalingView
	source     *prometheus.Source
	ehpa       *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
	prediction *predictionv1alpha1.TimeSeriesPrediction
	now        time.Time
}

// read returns a metric with its series, and the replicas that it requests. The error is the reason why the history is missing.
func (f *forecastReader) read(ctx context.Context, spec *predictionv1alpha1.PredictionMetric) (contract.ForecastMetric, []contract.Series, error) {
	out := contract.ForecastMetric{Name: spec.ResourceIdentifier, Algorithm: string(cmp.Or(spec.Algorithm.AlgorithmType, predictionv1alpha1.AlgorithmTypeAuto)), Series: []contract.Series{}}
	var published series.Series
	i := slices.IndexFunc(f.prediction.Status.PredictionMetrics, func(s predictionv1alpha1.PredictionMetricStatus) bool {
		return s.ResourceIdentifier == spec.ResourceIdentifier
	})

	var status predictionv1alpha1.PredictionMetricStatus
	if i >= 0 {
		status = f.prediction.Status.PredictionMetrics[i]
		out.Ready, out.Reason = status.Ready, status.Reason
		if skill, err := strconv.ParseFloat(status.Skill, 64); err == nil && !math.IsNaN(skill) && !math.IsInf(skill, 0) {
			out.Skill = &skill
		}

		published = publishedForecast(status)
	}

	// The reason why the HPA ignores a forecast is part of the answer.
	_, rejected := scalingmetric.ActionableForecast(f.prediction, spec.ResourceIdentifier, f.now)
	out.Used = rejected == nil
	if rejected != nil {
		out.Unused = rejected.Error()
	}

	history, unit, query, err := f.history(ctx, spec)
	add := func(kind string, s series.Series, query string) {
		if len(s.Values) == 0 {
			return
		}

		points, _ := dashboard.Thin(s, forecastPoints)
		points.Kind = kind
		points.Resource = spec.ResourceIdentifier
		points.Unit = unit
		points.PromQL = query
		out.Series = append(out.Series, points)
	}

	add("usage", history.Between(f.now.Add(-forecastShown), f.now.Add(time.Hour)), query)
	add("forecast", published, "")

	if err == nil && len(history.Values) > 0 {
		low, high, reason := band(history, f.prediction.Spec.Window())
		add("forecastLow", low, "")
		add("forecastHigh", high, "")
		out.Reason = cmp.Or(out.Reason, reason)
	}

	return out, f.requestedReplicas(spec, status, history, published, rejected == nil), err
}

// publishedForecast returns the samples of the only series of a metric; empty for several.
func publishedForecast(status predictionv1alpha1.PredictionMetricStatus) series.Series {
	var out series.Series
	if len(status.Prediction) != 1 || len(status.Prediction[0].Samples) < 2 {
		return out
	}

	samples := status.Prediction[0].Samples
	out.Start = time.Unix(samples[0].Timestamp, 0).UTC()
	out.Step = time.Duration(samples[1].Timestamp-samples[0].Timestamp) * time.Second
	for i, s := range samples {
		value, err := strconv.ParseFloat(s.Value, 64)
		if err != nil || out.Step <= 0 || s.Timestamp != samples[0].Timestamp+int64(i)*int64(out.Step.Seconds()) {
			return series.Series{}
		}

		out.Values = append(out.Values, value)
	}

	return out
}

// band returns two quantiles of the forecast of a history for a window, or the reason why there is none.
func band(history series.Series, window time.Duration) (low, high series.Series, reason string) {
	found, err := (auto.Algorithm{}).Forecast(history, window)
	if err != nil {
		return low, high, err.Error()
	}

	low = series.Series{Start: found.Start, Step: found.Step}
	high = low
	for _, q := range found.Values {
		low.Values = append(low.Values, q.At(bandLow))
		high.Values = append(high.Values, q.At(bandHigh))
	}

	return low, high, found.Reason
}

// history returns the sum of a metric over all pods. CPU and memory of the target are built-in queries that name its namespace; other
// expressions are those of the TimeSeriesPrediction, which need the right to read the whole cluster.
func (f *forecastReader) history(ctx context.Context, spec *predictionv1alpha1.PredictionMetric) (out series.Series, unit, query string, err error) {
	if f.source == nil {
		return out, "", "", nil
	}

	ref := f.ehpa.Spec.ScaleTargetRef
	container := prometheus.Matcher{Label: "container", Op: "!~", Value: "|POD"}

	template := seriesTemplate{matchers: []prometheus.Matcher{container}}
	person, _ := dashboard.PersonOf(ctx)
	switch {
	case spec.ResourceIdentifier == "resource.cpu":
		template.metric = "container_cpu_usage_seconds_total"
		template.expression = "sum(rate(%s[" + rateWindow + "]))"
		unit = string(rightsize.Cores)
	case spec.ResourceIdentifier == "resource.memory":
		template.metric = "container_memory_working_set_bytes"
		template.expression = "sum(%s)"
		unit = string(rightsize.BytesUnit)

	case spec.ExpressionQuery == nil:
		return out, "value", "", nil
	case f.view.Access.Fixed != nil && !person.Cluster: // A free query can read any namespace.
		return out, "value", "", dashboard.NewResponseError(http.StatusForbidden, contract.ReasonForbidden, "the history of "+spec.ResourceIdentifier+" is a free query, which needs the right to list all nodes and pods", "")
	default:
		unit = "value"
		query = spec.ExpressionQuery.Expression
	}

	if query == "" {
		if query, err = template.query(f.source, contract.Target{Namespace: f.ehpa.Namespace, Kind: ref.Kind, Name: ref.Name}); err != nil {
			return out, unit, query, err
		}
	}

	found, _, _, err := f.view.forecasts.Get(ctx, forecastKey{f.ehpa.Namespace, query, f.now.Truncate(forecastStep).Unix()})
	if err != nil {
		return out, unit, query, err
	}

	return *found, unit, query, nil
}

// forecastKey names the history of a metric.
type forecastKey struct {
	namespace, query string
	to               int64
}

func (v *autoscalingView) readForecastHistory(ctx context.Context, key forecastKey) (*series.Series, error) {
	source, err := v.history.openHistory(ctx)
	if err != nil {
		return nil, err
	}

	to := time.Unix(key.to, 0).UTC()
	found, err := source.Capabilities().Queries.Range(ctx, key.query, metrics.Window{Start: to.Add(-forecastHistory), End: to, Step: forecastStep})
	if err != nil {
		return nil, historyFailure(err)
	}

	if len(found) == 0 {
		return &series.Series{}, nil
	}

	if len(found) > 1 {
		return nil, fmt.Errorf("the query returns %d series, not one", len(found))
	}

	return &found[0].Series, nil
}

// requestedReplicas returns the replicas for the measured load, which are those of the HPA alone before its tolerance and stabilization, and
// those for the published forecast, if it is used.
func (f *forecastReader) requestedReplicas(
	spec *predictionv1alpha1.PredictionMetric, status predictionv1alpha1.PredictionMetricStatus, history, published series.Series, used bool,
) []contract.Series {
	if spec.Scaling == nil {
		return nil
	}

	capacity, err := strconv.ParseFloat(string(spec.Scaling.PodCapacity), 64)
	target, err2 := strconv.ParseFloat(string(spec.Scaling.Target), 64)
	if err != nil || err2 != nil || !(capacity > 0) || !(target > 0) {
		return nil
	}

	out := []contract.Series{f.replicas("replicasAlone", history.Between(f.now.Add(-forecastShown), f.now.Add(time.Hour)), capacity*target)}
	if used {
		fill := target
		if status.Scaling != nil {
			if chosen, err := strconv.ParseFloat(status.Scaling.Fill, 64); err == nil && chosen > 0 && chosen <= 1 {
				fill = chosen
			}
		}

		out = append(out, f.replicas("replicasForecast", published, capacity*fill))
	}

	return out
}

// replicas returns the replicas for a load, within the bounds of the autoscaler.
func (f *forecastReader) replicas(kind string, load series.Series, perPod float64) contract.Series {
	minReplicas := ptr.Deref(f.ehpa.Spec.MinReplicas, 1)
	counts := series.Series{Start: load.Start, Step: load.Step}
	for _, v := range load.Values {
		if !math.IsNaN(v) {
			v = min(max(math.Ceil(v/perPod), float64(minReplicas)), float64(f.ehpa.Spec.MaxReplicas))
		}
		counts.Values = append(counts.Values, v)
	}

	out, _ := dashboard.Thin(counts, forecastPoints)
	out.Kind = kind
	out.Resource = "replicas"
	out.Unit = "replicas"

	return out
}

// measuredReplicas returns the pods of the target over the shown time.
func (f *forecastReader) measuredReplicas(ctx context.Context, target contract.Target) ([]contract.Series, error) {
	templates := seriesTemplates()
	i := slices.IndexFunc(templates, func(t seriesTemplate) bool { return t.kind == "replicas" })
	query, err := templates[i].query(f.source, target)
	if err != nil {
		return nil, err
	}

	timeRange := dashboard.SeriesRange{From: f.now.Add(-forecastShown), To: f.now, Points: forecastPoints}
	found, _, _, err := f.view.history.series.Get(ctx, newSeriesKey(target.Namespace, query, timeRange))
	if err != nil {
		return nil, err
	}

	out := slices.Clone(found.series)
	for i := range out {
		out[i].Kind = "replicas"
		out[i].Resource = "replicas"
		out[i].Unit = "replicas"
		out[i].PromQL = query
	}

	return out, nil
}

// highestReplicas merges the replicas of several metrics: an HPA uses the highest number.
func highestReplicas(all []contract.Series) []contract.Series {
	var out []contract.Series
	for _, s := range all {
		if len(s.T) == 0 {
			continue
		}

		i := slices.IndexFunc(out, func(o contract.Series) bool { return o.Kind == s.Kind })
		if i < 0 {
			out = append(out, s)
			continue
		}

		// Series of several metrics may begin at different times: their points are matched by time.
		at := map[int64]int{}
		for k, t := range out[i].T {
			at[t] = k
		}

		for k, t := range s.T {
			if have, ok := at[t]; ok && s.V[k] != nil && (out[i].V[have] == nil || *out[i].V[have] < *s.V[k]) {
				out[i].V[have] = s.V[k]
			}
		}
	}

	return out
}
