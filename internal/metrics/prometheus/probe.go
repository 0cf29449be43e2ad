// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
)

// How far and how finely the probe looks for the oldest sample.
const (
	probeHistory = 60 * day
	probeCoarse  = 6 * time.Hour
	probeFine    = 5 * time.Minute
	maxClockSkew = 2 * time.Minute // scrape intervals and the last step of a reading hide less
)

// requiredMetrics lists the metrics that Crane reads and what is lost without each.
func requiredMetrics() []metrics.MetricPresence {
	return []metrics.MetricPresence{
		{Metric: cpuMetric, Required: true, Impact: "no CPU recommendations; scrape cAdvisor (the kubelet's /metrics/cadvisor)"},
		{Metric: memoryMetric, Required: true, Impact: "no memory recommendations; scrape cAdvisor (the kubelet's /metrics/cadvisor)"},
		{Metric: cacheMetric, Impact: "page cache cannot be told from memory in need; memory recommendations may be higher than needed"},
		{Metric: rssMetric, Impact: "how much of memory may be page cache is not shown where " + cacheMetric + " is missing"},
		{Metric: "container_cpu_cfs_throttled_periods_total", Impact: "throttling is not seen: a container held down by its CPU limit looks as if it needed no more"},
		{Metric: "container_cpu_cfs_periods_total", Impact: "throttling is not seen: a container held down by its CPU limit looks as if it needed no more"},
		{Metric: podOwnerMetric, Impact: "workloads are guessed from the names of pods; Jobs and bare ReplicaSets look like DaemonSets, custom kinds like the pod itself"},
		{Metric: replicaSetOwnerMetric, Impact: "the Deployment behind a ReplicaSet is guessed from its name; owners of custom kinds are not found"},
		{Metric: jobOwnerMetric, Impact: "the CronJob behind a Job is guessed from its name (expected to be absent where no Job exists)"},
		{Metric: podInfoMetric, Impact: "the node of a pod is not known: no sizes by node pool for DaemonSets"},
		{Metric: requestsMetric, Impact: "current requests are not known without a Kubernetes API: no comparison, no saving"},
		{Metric: limitsMetric, Impact: "current limits are not known without a Kubernetes API"},
		{Metric: containerInfoMetric, Impact: "containers without requests are not listed without a Kubernetes API"},
		{Metric: oomReasonMetric, Impact: "OOM kills are not seen from history (absent as well while no container has ended)"},
		{Metric: restartsMetric, Impact: "restarts and OOM kills are not seen from history"},
		{Metric: "kube_node_info", Impact: "nodes cannot be counted without a Kubernetes API"},
		{Metric: "kube_node_labels", Impact: "node pools cannot be told apart without a Kubernetes API"},
		{Metric: capacityMetric, Impact: "nodes are priced by what they have for pods without a Kubernetes API, not by all of it"},
		{Metric: autoscalerMetric, Impact: "autoscalers are not known without a Kubernetes API (absent as well where there is none)"},
		{Metric: autoscalerTargetMetric, Impact: "what autoscalers aim at is not known without a Kubernetes API (absent as well where there is none)"},
		{Metric: "kube_node_status_allocatable", Impact: "the largest fitting pod is not known without a Kubernetes API"},
		{Metric: "node_cpu_seconds_total", Impact: "load of whole nodes is not known: no idle nodes, no load-aware scheduling; install node-exporter"},
		{Metric: "node_memory_MemAvailable_bytes", Impact: "memory of whole nodes is not known: no idle nodes, no load-aware scheduling; install node-exporter"},
		{Metric: "node_memory_MemTotal_bytes", Impact: "memory of whole nodes is not known: no idle nodes, no load-aware scheduling; install node-exporter"},
	}
}

// Probe implements metrics.Prober: one query for the presence of all metrics, two for the scrape interval, two for the
// reach of history, and the server's version where it tells; two more where nothing was scraped of late. An error means
// that the server cannot be used.
func (s *Source) Probe(ctx context.Context) (metrics.SourceReport, error) {
	return s.probe(ctx, true)
}

// ProbeWithoutHistory is Probe without how far history reaches (Report.Oldest and History stay zero): finding that out takes the
// server longer than all the rest, as it has to look at every day.
func (s *Source) ProbeWithoutHistory(ctx context.Context) (metrics.SourceReport, error) {
	return s.probe(ctx, false)
}

func (s *Source) probe(ctx context.Context, withHistory bool) (metrics.SourceReport, error) {
	now := s.now()
	r := metrics.SourceReport{Metrics: requiredMetrics()}
	names := make([]string, len(r.Metrics))
	for i, m := range r.Metrics {
		names[i] = m.Metric
	}
	if err := s.probePresence(ctx, &r, names, now); err != nil {
		return r, err
	}
	at := now
	if r.Metrics[0].Series+r.Metrics[1].Series == 0 {
		// Perhaps scraping has stopped; what was there then still makes a history.
		newest, err := s.newest(ctx, s.containers("", oneOf("__name__", []string{cpuMetric, memoryMetric})), now)
		if err != nil {
			return r, fmt.Errorf("probing for the newest sample: %w", err)
		}
		if !newest.IsZero() {
			at = newest
			if err := s.probePresence(ctx, &r, names, at); err != nil {
				return r, err
			}
		}
	}
	var err error
	if r.Server, err = s.serverVersion(ctx); err != nil {
		return r, err
	}
	metric := memoryMetric
	if r.Metrics[1].Series == 0 {
		metric = cpuMetric
	}
	value, measured, err := s.scrapeInterval(ctx, metric, at)
	if err != nil {
		return r, err
	}
	if measured {
		r.ScrapeInterval, r.Newest = value, at.UTC()
	}
	if measured && withHistory {
		if err := s.probeHistory(ctx, &r, metric, now); err != nil {
			return r, fmt.Errorf("probing how far history reaches: %w", err)
		}
	}
	s.client.mu.Lock()
	r.ClockSkew = s.client.skew
	s.client.mu.Unlock()
	s.warn(&r, now)
	return r, nil
}

// probePresence counts the series of each metric at a time.
func (s *Source) probePresence(ctx context.Context, r *metrics.SourceReport, names []string, at time.Time) error {
	counts, err := s.Instant(ctx, s.presenceQuery(names), at)
	if err != nil {
		return fmt.Errorf("probing which metrics there are: %w", err)
	}
	for _, c := range counts {
		if i := slices.Index(names, c.Labels["__name__"]); i >= 0 {
			r.Metrics[i].Series = int(c.Value)
		}
		if c.Labels[renamedLabels] != "" {
			r.Warnings = append(r.Warnings, "kube-state-metrics is scraped without honorLabels, so its labels were renamed to exported_namespace, "+
				"exported_pod and so on; set honorLabels: true in its scrape job, or owners, requests and limits are not found")
		}
	}
	return nil
}

// newestWithin is how far back the newest sample is looked for where there is none now.
const newestWithin = 3 * day

// newest is the last time, within minutes, at which a selector had a sample; zero where it had none for days.
func (s *Source) newest(ctx context.Context, sel string, now time.Time) (time.Time, error) {
	now = now.Truncate(time.Second)
	list, err := s.Range(ctx, "count("+sel+")", metrics.Window{Start: now.Add(-newestWithin), End: now.Add(time.Second), Step: probeFine})
	if err != nil {
		return time.Time{}, err
	}
	var last time.Time
	for _, l := range list {
		for i, v := range l.Values {
			if t := l.Time(i); v > 0 && t.After(last) {
				last = t
			}
		}
	}
	return last, nil
}

// renamedLabels is the label by which presenceQuery reports labels that the scrape renamed.
const renamedLabels = "renamed_labels"

// presenceQuery counts the series of each metric, and those of kube-state-metrics whose labels the scrape renamed, in
// one query.
func (s *Source) presenceQuery(names []string) string {
	present := selector("", s.matchers(oneOf("__name__", names))...)
	renamed := selector(podOwnerMetric, s.matchers(Matcher{Label: "exported_namespace", Op: "!=", Value: ""})...)
	return fmt.Sprintf(`count by (__name__) (%s) or label_replace(count(%s), %q, "true", "", "")`, present, renamed, renamedLabels)
}

// serverVersion asks what few servers must answer; only a lost connection is an error.
func (s *Source) serverVersion(ctx context.Context) (string, error) {
	var info struct {
		Application string `json:"application"`
		Version     string `json:"version"`
	}
	err := s.client.fetchJSON(ctx, buildInfoPath, nil, &info)
	var failure *Error
	if err != nil && (!errors.As(err, &failure) || failure.Kind == Unreachable) {
		return "", fmt.Errorf("asking for the version of the server: %w", err)
	}
	s.client.mu.Lock()
	host := s.client.host
	s.client.mu.Unlock()
	flavour := info.Application
	switch {
	case flavour != "":
	case host != "":
		flavour = "VictoriaMetrics"
	case err == nil:
		flavour = "Prometheus or compatible"
	default:
		return "", nil
	}
	if info.Version == "" {
		return sanitize(flavour), nil
	}
	return sanitize(flavour + " " + info.Version), nil
}

// probeHistory finds the oldest sample: coarsely over two months, then finely before the oldest point found.
func (s *Source) probeHistory(ctx context.Context, r *metrics.SourceReport, metric string, now time.Time) error {
	now = now.Truncate(time.Second)
	query := "count(" + s.containers(metric) + ")"
	first := now.Add(-probeHistory)
	oldest, err := s.firstPoint(ctx, query, metrics.Window{Start: first, End: now.Add(time.Second), Step: probeCoarse})
	if err != nil {
		return err
	}
	if oldest.IsZero() {
		oldest = now
	}
	if oldest.Equal(first) {
		r.HistoryTruncated = true
	} else {
		fine, err := s.firstPoint(ctx, query, metrics.Window{Start: oldest.Add(-probeCoarse), End: oldest.Add(time.Second), Step: probeFine})
		if err != nil {
			return err
		}
		if !fine.IsZero() {
			oldest = fine
		}
	}
	r.Oldest, r.History = oldest.UTC(), now.Sub(oldest)
	return nil
}

func (s *Source) firstPoint(ctx context.Context, query string, w metrics.Window) (time.Time, error) {
	list, err := s.Range(ctx, query, w)
	if err != nil {
		return time.Time{}, err
	}
	var first time.Time
	for _, l := range list {
		for i, v := range l.Values {
			if v > 0 {
				if t := l.Time(i); first.IsZero() || t.Before(first) {
					first = t
				}
				break
			}
		}
	}
	return first, nil
}

func (s *Source) warn(r *metrics.SourceReport, now time.Time) {
	add := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	present := 0
	for _, m := range r.Metrics {
		if m.Series > 0 {
			present++
		}
	}
	if present == 0 {
		if m := s.client.cfg.Matchers; len(m) > 0 {
			add("no metric that Crane reads has a series with %s: check the extra labels", selector("", m...))
		} else {
			add("no metric that Crane reads has a series: is this the Prometheus that scrapes the cluster?")
		}
	}
	for _, m := range r.Metrics {
		if m.Series == 0 && m.Required && present > 0 {
			add("%s is missing: %s", m.Metric, m.Impact)
		}
	}
	if r.ClockSkew > maxClockSkew || r.ClockSkew < -maxClockSkew {
		add("the server's clock differs from ours by %v: recent samples may be cut off; synchronise the clocks", r.ClockSkew.Round(time.Second))
	}
	if age := now.Sub(r.Newest); !r.Newest.IsZero() && age > probeFine {
		add("the newest container sample is %v old: is the cluster still scraped?", age.Round(time.Minute))
	}
	if r.ScrapeInterval > 2*time.Minute {
		add("containers are scraped every %v: peaks in between are not seen", r.ScrapeInterval)
	}
	for _, w := range s.Stats().Warnings {
		add("the server warns: %s", sanitize(w))
	}
}
