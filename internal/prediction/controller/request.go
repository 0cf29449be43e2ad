// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/metrics/promscope"
	"crane.io/crane/internal/prediction/controller/canonical"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/dsp"
	"crane.io/crane/pkg/forecast/percentile"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/scaling"
)

// Selector returns a selector for a metric in the query language of the source, with quoted values and the configured
// matchers added.
type Selector func(metric string, matchers ...prometheus.Matcher) (string, error)

// kindNode is the kind of targets that are nodes; as in gocrane it is case-insensitive.
const kindNode = "Node"

// QueryOf returns the query of a metric of a prediction. Errors are written for users.
func QueryOf(
	tsp *predictionv1alpha1.TimeSeriesPrediction, m *predictionv1alpha1.PredictionMetric, selector Selector, isolation Isolation,
) (q predictor.Query, err error) {
	switch m.Type {
	case predictionv1alpha1.ResourceQueryMetricType:
		q, err = resourceQuery(tsp, m.ResourceQuery)
	case predictionv1alpha1.MetricQueryMetricType:
		q.Expression, err = metricQuery(m.MetricQuery, selector)
		q.Expression = canonical.Expression(q.Expression)

	case predictionv1alpha1.ExpressionQueryMetricType:
		if m.ExpressionQuery == nil || strings.TrimSpace(m.ExpressionQuery.Expression) == "" {
			err = errors.New("expressionQuery: the expression is empty")
			break
		}

		q.Expression = canonical.Expression(m.ExpressionQuery.Expression)

	default:
		err = fmt.Errorf("type %q: want %s, %s or %s", m.Type, predictionv1alpha1.ResourceQueryMetricType,
			predictionv1alpha1.MetricQueryMetricType, predictionv1alpha1.ExpressionQueryMetricType)
	}

	if err != nil {
		return q, err
	}

	return isolation.restrict(tsp, q)
}

// requestOf returns the request of a metric with a query. Errors are written for users.
func requestOf(tsp *predictionv1alpha1.TimeSeriesPrediction, m *predictionv1alpha1.PredictionMetric, q specQuery) (predictor.Request, error) {
	r := predictor.Request{Query: q.query, Algorithm: string(m.Algorithm.AlgorithmType), Options: OptionsOf(m.Algorithm)}
	if p := m.Algorithm.Percentile; p != nil {
		r.Aggregated = p.Aggregated
	}

	if q.err != nil {
		return r, q.err
	}

	var err error
	r.Scaling, err = scalingOf(tsp, m)
	return r, err
}

func resourceQuery(tsp *predictionv1alpha1.TimeSeriesPrediction, resource *corev1.ResourceName) (predictor.Query, error) {
	target := tsp.Spec.TargetRef
	switch {
	case resource == nil:
		return predictor.Query{}, errors.New("resourceQuery is not set")
	case *resource != corev1.ResourceCPU && *resource != corev1.ResourceMemory:
		return predictor.Query{}, fmt.Errorf("resourceQuery: %q: want cpu or memory", *resource)
	case target == nil || target.Name == "" || target.Kind == "":
		return predictor.Query{}, errors.New("targetRef: a resourceQuery needs the kind and the name of the target")
	}

	if err := checkLengths(target); err != nil {
		return predictor.Query{}, err
	}

	q := predictor.Query{Resource: metrics.UsageKind(*resource)}
	if strings.EqualFold(target.Kind, kindNode) {
		q.Target = workload.Ref{Kind: kindNode, Name: target.Name}
		return q, nil
	}

	// Targets are usually in the namespace of the prediction and leave it out.
	q.Target = workload.Ref{Namespace: target.Namespace, Kind: target.Kind, Name: target.Name}
	if q.Target.Namespace == "" {
		q.Target.Namespace = tsp.Namespace
	}

	return q, nil
}

// maxTargetName is the maximum length of a name in Kubernetes, in bytes. Reads join the names of many targets into one query.
const maxTargetName = 253

// checkLengths refuses a target that no object can have. The schema refuses it too, except in objects that are older than the rule.
func checkLengths(target *corev1.ObjectReference) error {
	for _, f := range []struct{ name, value string }{{"kind", target.Kind}, {"namespace", target.Namespace}, {"name", target.Name}} {
		if len(f.value) > maxTargetName {
			return fmt.Errorf("targetRef.%s: has %d bytes, more than %d", f.name, len(f.value), maxTargetName)
		}
	}

	return nil
}

// metricQuery returns sum(metric{conditions}), as in gocrane.
func metricQuery(q *predictionv1alpha1.MetricQuery, selector Selector) (string, error) {
	if q == nil || q.MetricName == "" {
		return "", errors.New("metricQuery: the name of the metric is not set")
	}

	var matchers []prometheus.Matcher
	for i, c := range q.QueryConditions {
		m, err := MatcherOf(c)
		if err != nil {
			return "", fmt.Errorf("metricQuery.labels[%d]: %w", i, err)
		}

		matchers = append(matchers, m)
	}

	text, err := selector(q.MetricName, matchers...)
	if err != nil {
		return "", fmt.Errorf("metricQuery: %w", err)
	}

	return "sum(" + text + ")", nil
}

// MatcherOf converts a label condition into a Prometheus matcher. Errors are written for users.
func MatcherOf(c predictionv1alpha1.QueryCondition) (prometheus.Matcher, error) {
	m := prometheus.Matcher{Label: c.Key, Op: string(c.Operator)}
	if c.Operator == predictionv1alpha1.OperatorIn {
		if len(c.Value) == 0 {
			return m, fmt.Errorf("label %s: the operator in needs one value at least", c.Key)
		}

		// The values of in are literals, other than those of =~.
		quoted := make([]string, len(c.Value))
		for i, v := range c.Value {
			quoted[i] = regexp.QuoteMeta(v)
		}

		m.Op = "=~"
		m.Value = strings.Join(quoted, "|")
		return m, nil
	}

	if m.Op == "" {
		m.Op = "="
	}

	if len(c.Value) != 1 {
		return m, fmt.Errorf("label %s: the operator %s needs one value, not %d", c.Key, m.Op, len(c.Value))
	}

	m.Value = c.Value[0]
	return m, m.Validate()
}

// OptionsOf copies the settings unchanged; package registry validates them.
func OptionsOf(a predictionv1alpha1.Algorithm) registry.Options {
	var out registry.Options
	if d := a.DSP; d != nil {
		out.DSP = dsp.Options{SampleInterval: string(d.SampleInterval), HistoryLength: string(d.HistoryLength)}
		if d.Estimators != nil {
			for _, e := range d.Estimators.MaxValueEstimators {
				out.DSP.MaxValue = append(out.DSP.MaxValue, dsp.MaxValueOptions{MarginFraction: string(e.MarginFraction)})
			}

			for _, e := range d.Estimators.FFTEstimators {
				out.DSP.FFT = append(out.DSP.FFT, dsp.FFTOptions{
					MarginFraction:         string(e.MarginFraction),
					LowAmplitudeThreshold:  string(e.LowAmplitudeThreshold),
					HighFrequencyThreshold: string(e.HighFrequencyThreshold),
					MinNumOfSpectrumItems:  e.MinNumOfSpectrumItems,
					MaxNumOfSpectrumItems:  e.MaxNumOfSpectrumItems,
				})
			}
		}
	}

	// The types of the API have the same fields; the packages of algorithms do not depend on it.
	if p := a.Percentile; p != nil {
		out.Percentile = percentile.Options{
			HistoryLength:     string(p.HistoryLength),
			SampleInterval:    string(p.SampleInterval),
			MinSampleWeight:   string(p.MinSampleWeight),
			MarginFraction:    string(p.MarginFraction),
			Percentile:        string(p.Percentile),
			TargetUtilization: string(p.TargetUtilization),
		}

		if h := p.Histogram; h != nil {
			out.Percentile.Histogram = percentile.Histogram{
				MaxValue:              string(h.MaxValue),
				Epsilon:               string(h.Epsilon),
				HalfLife:              string(h.HalfLife),
				BucketSize:            string(h.BucketSize),
				FirstBucketSize:       string(h.FirstBucketSize),
				BucketSizeGrowthRatio: string(h.BucketSizeGrowthRatio),
			}
		}
	}

	return out
}

// scalingOf returns the evaluation that a metric of the spec requests; nil for none. It continues from the state in
// the status. Errors are written for users.
func scalingOf(tsp *predictionv1alpha1.TimeSeriesPrediction, m *predictionv1alpha1.PredictionMetric) (*predictor.Scaling, error) {
	s := m.Scaling
	if s == nil {
		return nil, nil
	}

	capacity, errCapacity := strconv.ParseFloat(string(s.PodCapacity), 64)
	target, errTarget := strconv.ParseFloat(string(s.Target), 64)
	if err := errors.Join(errCapacity, errTarget); err != nil {
		return nil, fmt.Errorf("scaling: podCapacity %q, target %q: want numbers", s.PodCapacity, s.Target)
	}

	out := &predictor.Scaling{
		Name: m.ResourceIdentifier,
		Plant: scaling.Plant{
			Capacity:            capacity,
			Target:              target,
			Lag:                 time.Duration(s.LagSeconds) * time.Second,
			StabilizationWindow: time.Duration(s.StabilizationSeconds) * time.Second,
		},
		Window: tsp.Spec.Window(),
	}

	for i := range tsp.Status.PredictionMetrics {
		if old := &tsp.Status.PredictionMetrics[i]; old.ResourceIdentifier == m.ResourceIdentifier && old.Scaling != nil {
			// An invalid state, or one of another version, starts the evaluation anew.
			out.State, _ = base64.StdEncoding.DecodeString(old.Scaling.Ledger)
		}
	}

	return out, nil
}

// choiceOf converts an evaluation into its API form.
func choiceOf(a predictor.Advice) *predictionv1alpha1.ScalingChoice {
	out := &predictionv1alpha1.ScalingChoice{
		Use:         a.Use,
		LeadSeconds: int32(a.Lead / time.Second),
		Why:         sentence(a.Reason),
		Ledger:      base64.StdEncoding.EncodeToString(a.State),
	}

	if a.Actual != (scaling.Balance{}) {
		out.ActualExtraReplicas = decimal(a.Actual.ExtraCost, 3)
		out.ActualSparedTime = decimal(a.Actual.SparedShortage, 2)
	}

	if a.Use {
		out.Basis = string(a.Level.Basis)
		out.Quantile = decimal(a.Level.Quantile, -1)
		out.Fill = decimal(a.Level.Utilization, -1)
		out.ExtraReplicas = decimal(a.ExtraCost, 3)
		out.SparedTime = decimal(a.SparedShortage, 2)
	}

	return out
}

func decimal(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// publishedForecast returns a forecast, and the function that selects the published value of a step: the quantile chosen for
// scaling, or else the value that the algorithm publishes.
func publishedForecast(f predictor.SeriesForecast, advice *predictor.Advice) (predictor.SeriesForecast, func(forecast.Quantiles) float64) {
	if advice == nil || !advice.Use {
		return f, f.Published
	}

	if advice.Level.Basis == scaling.BasisHighs {
		f.Forecast = f.OfHighs()
	}

	return f, func(q forecast.Quantiles) float64 { return q.At(advice.Level.Quantile) }
}

// Isolation restricts predictions to the series of their own namespace. Without it every user who may create a prediction can read all series
// through craned.
type Isolation struct {
	Enabled bool
	// Label is the label of series with the namespace that they belong to.
	Label string
	// SystemNamespace is Crane's own namespace. Its predictions, and those of the namespaces in Unrestricted, read all series.
	SystemNamespace string
	Unrestricted    []string
	// ClusterScope honors spec.queryScope Cluster. The admission policy crane-prediction-query-scope must be in force then.
	ClusterScope bool
}

// restricts reports whether a prediction reads its own namespace only.
func (i Isolation) restricts(tsp *predictionv1alpha1.TimeSeriesPrediction) bool {
	return i.Enabled && tsp.Namespace != i.SystemNamespace && !slices.Contains(i.Unrestricted, tsp.Namespace) &&
		(!i.ClusterScope || tsp.Spec.QueryScope != predictionv1alpha1.QueryScopeCluster)
}

// emptyReason explains to users why a query may have no series.
func (i Isolation) emptyReason(tsp *predictionv1alpha1.TimeSeriesPrediction, q predictor.Query) string {
	reason := "no series for query " + shorten(q.String(), maxQuery)
	switch {
	case q.Resource != "":
		return "no series for " + shorten(q.String(), maxQuery) + ": it does not exist, or no series of its pods or of their owners is in the history"
	case !i.restricts(tsp):
		return reason
	}

	lift := "spec.queryScope: " + predictionv1alpha1.QueryScopeCluster + ", which needs the verb query-cluster, reads all series"
	if !i.ClusterScope {
		lift = "an administrator can let craned honor spec.queryScope: " + predictionv1alpha1.QueryScopeCluster +
			" or list the namespace in --tenant-unrestricted-namespaces"
	}

	return fmt.Sprintf("%s: under tenant isolation only series with %s=%q are read; %s", reason, i.Label, tsp.Namespace, lift)
}

// restrict returns the query limited to the namespace of the prediction, or an error if it cannot be. Errors are written for users.
func (i Isolation) restrict(tsp *predictionv1alpha1.TimeSeriesPrediction, q predictor.Query) (predictor.Query, error) {
	if !i.restricts(tsp) {
		return q, nil
	}

	if q.Resource != "" {
		if q.Target.Namespace != tsp.Namespace {
			return q, fmt.Errorf("targetRef: %s is not in namespace %s, and predictions are isolated: set spec.queryScope to %s, which needs the right to do so",
				q.Target, tsp.Namespace, predictionv1alpha1.QueryScopeCluster)
		}

		return q, nil
	}

	text, err := promscope.Restrict(q.Expression, i.Label, tsp.Namespace)
	if err != nil {
		return q, fmt.Errorf("the expression cannot be restricted to namespace %s: %w", tsp.Namespace, err)
	}

	q.Expression = canonical.Expression(text)
	return q, nil
}
