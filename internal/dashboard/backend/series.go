// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/rightsize"
)

const (
	// seriesStep is the step of all series; rateWindow spans several scrapes.
	seriesStep = time.Minute
	rateWindow = "5m"
	maxMarks   = 200
)

// seriesTemplate is a query for one workload, bound to its namespace and pods.
type seriesTemplate struct {
	kind, metric, resource, unit string
	matchers                     []prometheus.Matcher
	// expression has %s for the selector.
	expression string
}

func seriesTemplates() []seriesTemplate {
	container := prometheus.Matcher{Label: "container", Op: "!~", Value: "|POD"}
	resourceMatchers := func(resource string) []prometheus.Matcher {
		return []prometheus.Matcher{container, {Label: "resource", Op: "=", Value: resource}}
	}
	const cores = string(rightsize.Cores)
	const bytes = string(rightsize.BytesUnit)
	used, working := "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
	requests, limits := "kube_pod_container_resource_requests", "kube_pod_container_resource_limits"

	return []seriesTemplate{
		{"usage", used, "cpu", cores, []prometheus.Matcher{container}, "max by (container) (rate(%s[" + rateWindow + "]))"},
		{"usageMean", used, "cpu", cores, []prometheus.Matcher{container}, "avg by (container) (rate(%s[" + rateWindow + "]))"},
		{"usage", working, "memory", bytes, []prometheus.Matcher{container}, "max by (container) (%s)"},
		{"usageMean", working, "memory", bytes, []prometheus.Matcher{container}, "avg by (container) (%s)"},
		{"request", requests, "cpu", cores, resourceMatchers("cpu"), "max by (container) (%s)"},
		{"request", requests, "memory", bytes, resourceMatchers("memory"), "max by (container) (%s)"},
		{"limit", limits, "cpu", cores, resourceMatchers("cpu"), "max by (container) (%s)"},
		{"limit", limits, "memory", bytes, resourceMatchers("memory"), "max by (container) (%s)"},
		{"replicas", "kube_pod_info", "replicas", "replicas", nil, "count(%s)"},
	}
}

// podPattern returns a regular expression of the names that a controller gives to the pods of a workload. The suffixes have no vowels, so
// that pods of workloads with a longer name do not match.
func podPattern(kind, name string) string {
	const suffix = "[bcdfghjklmnpqrstvwxz2456789]"
	name = regexp.QuoteMeta(name)
	switch kind {
	case "StatefulSet":
		return name + "-[0-9]+"
	case "DaemonSet", "ReplicaSet", "ReplicationController":
		return name + "-" + suffix + "{5}"
	case "Job":
		return name + "-(?:[0-9]+-)?" + suffix + "{5}"
	case "CronJob":
		return name + "-[0-9]+-(?:[0-9]+-)?" + suffix + "{5}"
	case "Pod":
		return name
	}

	return name + "-" + suffix + "{1,10}-" + suffix + "{5}"
}

// seriesView reads the charts of a workload.
type seriesView struct {
	*viewAccess
	history *clusterHistory
}

// Series implements dashboard.Backend.
func (v *seriesView) Series(ctx context.Context, target contract.Target, timeRange dashboard.SeriesRange) (contract.WorkloadSeries, error) {
	out := contract.WorkloadSeries{
		From:        timeRange.From.Unix(),
		To:          timeRange.To.Unix(),
		StepSeconds: int64(seriesStep.Seconds()),
		Series:      []contract.Series{},
		Marks:       []contract.Mark{},
	}

	out.AsOf = v.Clock.Now().Unix()
	if v.fromFiles() {
		return v.fileSeries(target, timeRange, out)
	}

	if target.Namespace == "" {
		return out, dashboard.NewResponseError(http.StatusBadRequest, contract.ReasonInvalid, "the namespace of the workload is required", "")
	}

	source, err := v.history.openHistory(ctx)
	if err != nil {
		return out, err
	}

	out.Source = v.history.server().Name()
	// Each query is cached on its own, so that viewers of overlapping pages share them.
	for _, template := range seriesTemplates() {
		query, err := template.query(source, target)
		if err != nil {
			return out, err
		}

		found, at, stale, err := v.history.series.Get(ctx, newSeriesKey(target.Namespace, query, timeRange))
		if err != nil {
			return out, err
		}

		out.AsOf = min(out.AsOf, at.Unix())
		out.Stale = cmp.Or(out.Stale, stale)
		out.Thinned = out.Thinned || found.thinned
		for _, chart := range found.series {
			chart.Kind = template.kind
			chart.Resource = template.resource
			chart.Unit = template.unit
			chart.PromQL = query
			out.Series = append(out.Series, chart)
		}
	}

	if out.Marks, err = v.marks(ctx, target, timeRange); err != nil {
		failure := dashboard.FailureOf(err).Body
		out.MarksError = &failure
	}

	return out, nil
}

// query returns the query of a template for a workload.
func (t seriesTemplate) query(source *prometheus.Source, target contract.Target) (string, error) {
	selector, err := source.Selector(t.metric, append([]prometheus.Matcher{
		{Label: "namespace", Op: "=", Value: target.Namespace}, {Label: "pod", Op: "=~", Value: podPattern(target.Kind, target.Name)},
	}, t.matchers...)...)
	if err != nil {
		return "", fmt.Errorf("building a query: %w", err)
	}

	return fmt.Sprintf(t.expression, selector), nil
}

// seriesKey names the result of a query. The rights to the namespace are reviewed before the cache is asked.
type seriesKey struct {
	namespace, query string
	from, to         int64
	points           int
}

// querySeries is the result of a query, thinned.
type querySeries struct {
	series  []contract.Series
	thinned bool
}

func newSeriesKey(namespace, query string, timeRange dashboard.SeriesRange) seriesKey {
	return seriesKey{namespace, query, timeRange.From.Truncate(seriesStep).Unix(), timeRange.To.Truncate(seriesStep).Add(seriesStep).Unix(), timeRange.Points}
}

func (v *clusterHistory) readSeries(ctx context.Context, key seriesKey) (*querySeries, error) {
	source, err := v.openHistory(ctx)
	if err != nil {
		return nil, err
	}

	found, err := source.Capabilities().Queries.Range(ctx, key.query, metrics.Window{Start: time.Unix(key.from, 0).UTC(), End: time.Unix(key.to, 0).UTC(), Step: seriesStep})
	if err != nil {
		return nil, historyFailure(err)
	}

	out := &querySeries{}
	for _, s := range found {
		points, thinned := dashboard.Thin(s.Series, key.points)
		points.Container = s.Labels["container"]
		out.series = append(out.series, points)
		out.thinned = out.thinned || thinned
	}

	return out, nil
}

// fileSeries returns the series of a file.
func (v *seriesView) fileSeries(target contract.Target, timeRange dashboard.SeriesRange, out contract.WorkloadSeries) (contract.WorkloadSeries, error) {
	files, _, err := csv.ReadDir(v.From)
	if err != nil {
		return out, historyFailure(err)
	}

	i := slices.IndexFunc(files, func(f csv.File) bool { return f.Name == target.Name })
	if i < 0 {
		return out, dashboard.NewResponseError(http.StatusNotFound, contract.ReasonNotFound, fmt.Sprintf("%s has no file %s", v.From, target.Name), "")
	}

	s := files[i].Series
	part := s.Between(timeRange.From, timeRange.To)
	if len(part.Values) == 0 { // The files may end long before today.
		part = s
	}

	unit := string(rightsize.Cores)
	if v.Resource == string(metrics.Memory) {
		unit = string(rightsize.BytesUnit)
	}

	points, thinned := dashboard.Thin(part, timeRange.Points)
	points.Kind = "usage"
	points.Container = target.Name
	points.Resource = v.Resource
	points.Unit = unit

	out.Series = append(out.Series, points)
	out.Thinned = thinned
	out.Source = v.From
	out.From = part.Start.Unix()
	out.To = part.End().Unix()
	out.StepSeconds = int64(s.Step.Seconds())

	return out, nil
}

// marks returns rollouts, adoption events and OOM kills of a workload.
func (v *seriesView) marks(ctx context.Context, target contract.Target, timeRange dashboard.SeriesRange) ([]contract.Mark, error) {
	out := []contract.Mark{}
	c, err := v.Personal.ObjectClient()
	if err != nil {
		return out, err
	}

	add := func(at time.Time, kind, text string) {
		if !at.Before(timeRange.From) && !at.After(timeRange.To) {
			out = append(out, contract.Mark{At: at.Unix(), Kind: kind, Text: text})
		}
	}

	if target.Kind == "Deployment" {
		var sets appsv1.ReplicaSetList
		if err := c.List(ctx, &sets, client.InNamespace(target.Namespace)); err != nil {
			return out, fmt.Errorf("listing ReplicaSets: %w", err)
		}

		for i := range sets.Items {
			if owner := metav1.GetControllerOfNoCopy(&sets.Items[i]); owner != nil && owner.Kind == target.Kind && owner.Name == target.Name {
				add(sets.Items[i].CreationTimestamp.Time, "rollout", "ReplicaSet "+sets.Items[i].Name)
			}
		}
	}

	var events corev1.EventList
	if err := c.List(ctx, &events, client.InNamespace(target.Namespace), client.MatchingFields{
		"involvedObject.kind": target.Kind, "involvedObject.name": target.Name,
	}); err != nil {
		return out, fmt.Errorf("listing Events: %w", err)
	}

	// Other events of the workload do not explain a change of its usage.
	kinds := map[string]string{
		"AdoptionStep": "resize", "AdoptionRaised": "resize", "AdoptionReacted": "resize", "AdoptionRolledBack": "rollback",
		"AdoptionStopped": "adoption", "AdoptionWithdrawn": "adoption", "AdoptionTemplate": "rollout",
	}

	for i := range events.Items {
		e := &events.Items[i]
		if kind := kinds[e.Reason]; kind != "" {
			at := e.LastTimestamp.Time
			if at.IsZero() {
				at = e.EventTime.Time
			}

			add(at, kind, e.Message)
		}
	}

	if err := markKills(ctx, c, target, add); err != nil {
		return out, err
	}

	slices.SortFunc(out, func(a, b contract.Mark) int { return cmp.Compare(a.At, b.At) })
	return out[max(0, len(out)-maxMarks):], nil
}

// markKills adds the kills of containers of a workload for their memory.
func markKills(ctx context.Context, c client.Client, target contract.Target, add func(at time.Time, kind, text string)) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(target.Namespace)); err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}

	named, err := regexp.Compile("^(?:" + podPattern(target.Kind, target.Name) + ")$")
	if err != nil {
		return fmt.Errorf("matching the pods of %s %s: %w", target.Kind, target.Name, err)
	}

	for i := range pods.Items {
		if !named.MatchString(pods.Items[i].Name) {
			continue
		}

		for _, s := range pods.Items[i].Status.ContainerStatuses {
			if t := s.LastTerminationState.Terminated; t != nil && t.Reason == "OOMKilled" {
				add(t.FinishedAt.Time, "oom", fmt.Sprintf("container %s of pod %s was killed for its memory", s.Name, pods.Items[i].Name))
			}
		}
	}

	return nil
}
