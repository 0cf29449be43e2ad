// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/metrics"
)

const (
	// pastDays are the days of history on the page, in steps of pastStep; most forecasts have a daily period.
	pastDays = 2
	pastStep = 5 * time.Minute
	// maxDrawn is the maximum number of charts per metric.
	maxDrawn = 20
	// maxDrawnPoints is the maximum number of points per line; a screen has no more columns.
	maxDrawnPoints = 2000
	chartWidth     = 900
	chartHeight    = 220
)

//go:embed debug.html.tmpl
var debugTemplate string

// page is the data of the template.
type page struct {
	Namespace, Name string
	Now             time.Time
	Conditions      []metav1.Condition
	Metrics         []metricView
}

// metricView is one metric of a prediction.
type metricView struct {
	Name, Algorithm, Reason, Skill string
	Ready                          bool
	// Problem is the reason why the history is not shown.
	Problem string
	Charts  []chart
	// More is the number of series without a chart.
	More int
}

// chart shows the history and the forecast of one series.
type chart struct {
	Labels         string
	Width, Height  int
	Past, Forecast string // SVG paths
	Now            string // the x coordinate of the current time
	From, To       time.Time
	Low, High      string
}

// debug writes a page that compares the forecast of a prediction with its history.
func (a *API) debug(w http.ResponseWriter, r *http.Request) error {
	var tsp predictionv1alpha1.TimeSeriesPrediction
	key := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if err := a.config.Objects.Get(r.Context(), key, &tsp); err != nil {
		status := http.StatusServiceUnavailable
		if apierrors.IsNotFound(err) {
			status = http.StatusNotFound
		}

		writeError(w, status, fmt.Sprintf("prediction %s: %v", key, err))
		return nil
	}

	now := a.config.Clock.Now().UTC()
	p := page{
		Namespace:  key.Namespace,
		Name:       key.Name,
		Now:        now,
		Conditions: tsp.Status.Conditions,
	}

	window := metrics.Window{Start: now.AddDate(0, 0, -pastDays).Truncate(pastStep), End: now, Step: pastStep}
	for i := range tsp.Spec.PredictionMetrics {
		metric := &tsp.Spec.PredictionMetrics[i]
		view := metricView{Name: metric.ResourceIdentifier, Algorithm: string(metric.Algorithm.AlgorithmType)}
		past, err := a.config.PastSeries(r.Context(), &tsp, metric, window)
		if err != nil {
			view.Problem = publicMessage(r.Context(), err)
		}

		view.addCharts(metricStatus(&tsp, metric.ResourceIdentifier), past, now)
		p.Metrics = append(p.Metrics, view)
	}

	page, err := template.New("debug").Parse(debugTemplate)
	if err != nil {
		return fmt.Errorf("reading the page's template: %w", err)
	}

	out := &limitedBuffer{remaining: maxAnswer}
	if err := page.Execute(out, p); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(out.Bytes()) // The client has disconnected.

	return nil
}

func metricStatus(tsp *predictionv1alpha1.TimeSeriesPrediction, name string) *predictionv1alpha1.PredictionMetricStatus {
	for i := range tsp.Status.PredictionMetrics {
		if s := &tsp.Status.PredictionMetrics[i]; s.ResourceIdentifier == name {
			return s
		}
	}

	return nil
}

// addCharts joins each forecast with the history of the same labels; a single forecast is joined with a single history.
func (v *metricView) addCharts(status *predictionv1alpha1.PredictionMetricStatus, past []metrics.LabeledSeries, now time.Time) {
	forecasts := map[string][]point{}
	pasts := map[string][]point{}
	var order []string

	// Charts are in the order in which their labels appear first.
	note := func(labels string) {
		if forecasts[labels] == nil && pasts[labels] == nil {
			order = append(order, labels)
		}
	}

	if status != nil {
		v.Ready = status.Ready
		v.Reason = status.Reason
		v.Skill = status.Skill

		for _, s := range status.Prediction {
			labels := labelText(s.Labels)
			note(labels)
			forecasts[labels] = samples(s.Samples)
		}
	}

	for _, s := range past {
		var list []predictionv1alpha1.Label
		for name, value := range s.Labels {
			list = append(list, predictionv1alpha1.Label{Name: name, Value: value})
		}

		labels := labelText(list)
		if len(past) == 1 && len(forecasts) == 1 {
			labels = order[0]
		}

		note(labels)
		pasts[labels] = points(s.Series)
	}

	for _, labels := range order {
		if len(v.Charts) == maxDrawn {
			v.More = len(order) - maxDrawn
			return
		}

		if c, ok := newChart(labels, pasts[labels], forecasts[labels], now); ok {
			v.Charts = append(v.Charts, c)
		}
	}
}

func samples(list []predictionv1alpha1.Sample) []point {
	out := []point{}
	for _, s := range list {
		if v, err := strconv.ParseFloat(s.Value, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, point{time.Unix(s.Timestamp, 0).UTC(), v})
		}
	}

	return out
}

// newChart scales both lines into one chart; ok is false if there is no point.
func newChart(labels string, past, forecast []point, now time.Time) (chart, bool) {
	past = downsample(past)
	forecast = downsample(forecast)

	// The axes span all points, the current time and zero.
	low := math.Inf(1)

	high := math.Inf(-1)
	from := now
	to := now
	for _, line := range [][]point{past, forecast} {
		for _, p := range line {
			low = min(low, p.value)
			high = max(high, p.value)

			if p.at.Before(from) {
				from = p.at
			}
			if p.at.After(to) {
				to = p.at
			}
		}
	}

	if high < low {
		return chart{}, false
	}

	low = min(low, 0)
	span := max(to.Sub(from).Seconds(), 1)

	height := high - low
	if height == 0 {
		height = 1
	}

	x := func(t time.Time) float64 { return t.Sub(from).Seconds() / span * chartWidth }
	path := func(line []point) string {
		var b strings.Builder
		for i, p := range line {
			command := "L"
			if i == 0 {
				command = "M"
			}

			fmt.Fprintf(&b, "%s%.1f %.1f", command, x(p.at), chartHeight-(p.value-low)/height*chartHeight)
		}

		return b.String()
	}

	return chart{
		Labels:   labels,
		Width:    chartWidth,
		Height:   chartHeight,
		Past:     path(past),
		Forecast: path(forecast),
		Now:      fmt.Sprintf("%.1f", x(now)),
		From:     from,
		To:       to,
		Low:      strconv.FormatFloat(low, 'g', 4, 64),
		High:     strconv.FormatFloat(high, 'g', 4, 64),
	}, true
}

// downsample removes points evenly until at most maxDrawnPoints remain.
func downsample(line []point) []point {
	if len(line) <= maxDrawnPoints {
		return line
	}

	out := make([]point, maxDrawnPoints)
	for i := range out {
		out[i] = line[i*len(line)/maxDrawnPoints]
	}

	return out
}

// labelText formats labels sorted by name.
func labelText(list []predictionv1alpha1.Label) string {
	parts := make([]string, len(list))
	for i, l := range list {
		parts[i] = l.Name + "=" + strconv.Quote(l.Value)
	}

	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
