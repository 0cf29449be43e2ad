// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/units"
)

// Range and resolution of the search for the oldest sample.
const (
	probeHistory = 60 * day
	probeCoarse  = 6 * time.Hour
	probeFine    = 5 * time.Minute
	maxClockSkew = 2 * time.Minute // Scrape intervals and the last step of a request hide a smaller one.
)

// requiredMetrics returns the metrics that Crane reads and the impact of each missing one.
func requiredMetrics() []metrics.MetricPresence {
	const (
		noCadvisor   = "scrape cAdvisor (the kubelet's /metrics/cadvisor)"
		noThrottling = "throttling is not seen: a container held down by its CPU limit looks as if it needed no more"
		noNodeMemory = "memory of whole nodes is not known: no idle nodes, no load-aware scheduling; install node-exporter"
	)

	return []metrics.MetricPresence{
		{Metric: cpuMetric, Required: true, Impact: "no CPU recommendations; " + noCadvisor},
		{Metric: memoryMetric, Required: true, Impact: "no memory recommendations; " + noCadvisor},
		{Metric: cacheMetric, Impact: "page cache cannot be distinguished from required memory; memory recommendations may be higher than needed"},
		{Metric: rssMetric, Impact: "how much of memory may be page cache is not shown where " + cacheMetric + " is missing"},
		{Metric: throttledMetric, Impact: noThrottling},
		{Metric: periodsMetric, Impact: noThrottling},
		{Metric: podOwnerMetric, Impact: "workloads are guessed from the names of pods; Jobs and bare ReplicaSets look like DaemonSets, custom kinds like the pod itself"},
		{Metric: replicaSetOwnerMetric, Impact: "the Deployment behind a ReplicaSet is guessed from its name; owners of custom kinds are not found"},
		{Metric: jobOwnerMetric, Impact: "the CronJob behind a Job is guessed from its name (expected to be absent where no Job exists)"},
		{Metric: podInfoMetric, Impact: "the node of a pod is not known: no sizes by node pool for DaemonSets"},
		{Metric: requestsMetric, Impact: "current requests are not known without a Kubernetes API: no comparison, no saving"},
		{Metric: limitsMetric, Impact: "limits of the past are not known: neither the need that an OOM kill proves, nor which CPU usage was throttled"},
		{Metric: containerInfoMetric, Impact: "containers without requests are not listed without a Kubernetes API"},
		{Metric: oomReasonMetric, Impact: "OOM kills of containers that restart are not seen from history (absent as well while no container has ended)"},
		{Metric: endReasonMetric, Impact: "OOM kills of containers that do not restart, as of Jobs, are not seen from history (absent as well while there is none that ended)"},
		{Metric: initOOMReasonMetric, Impact: "OOM kills of sidecars and init containers are not seen from history (absent as well while none has ended)"},
		{Metric: oomEventsMetric, Impact: "OOM kills of processes within a container that goes on are not seen"},
		{Metric: restartsMetric, Impact: "of several OOM kills of one container, only the first is seen from history"},
		{Metric: initRestartsMetric, Impact: "of several OOM kills of one sidecar, only the first is seen from history (absent as well where there is no init container)"},
		{Metric: nodeInfoMetric, Impact: "nodes cannot be counted without a Kubernetes API"},
		{Metric: nodeLabelsMetric, Impact: "node pools cannot be distinguished without a Kubernetes API"},
		{Metric: capacityMetric, Impact: "without a Kubernetes API, nodes are priced by their allocatable amounts instead of their capacity"},
		{Metric: autoscalerMetric, Impact: "autoscalers are not known without a Kubernetes API (absent as well where there is none)"},
		{Metric: autoscalerTargetMetric, Impact: "the targets of autoscalers are not known without a Kubernetes API (absent as well where there is none)"},
		{Metric: allocatableMetric, Impact: "the largest fitting pod is not known without a Kubernetes API"},
		{Metric: nodeCPUMetric, Impact: "load of whole nodes is not known: no idle nodes, no load-aware scheduling; install node-exporter"},
		{Metric: nodeAvailableMetric, Impact: noNodeMemory},
		{Metric: nodeTotalMetric, Impact: noNodeMemory},
	}
}

// prober implements metrics.Prober.
type prober struct {
	*queries

	intervals *intervalDetector
}

// probe returns a report, with the age of the history if withHistory is set.
func (p *prober) probe(ctx context.Context, withHistory bool) (metrics.SourceReport, error) {
	now := p.now()
	r := metrics.SourceReport{Metrics: requiredMetrics()}
	if err := p.countSeries(ctx, &r, now); err != nil {
		return r, err
	}

	at := now
	if r.Metrics[0].Series+r.Metrics[1].Series == 0 {
		// Scraping may have stopped; earlier samples still form a history.
		newest, err := p.newest(ctx, p.expr.anyUsage(), now)
		if err != nil {
			return r, fmt.Errorf("probing for the newest sample: %w", err)
		}

		if !newest.IsZero() {
			at = newest
			if err := p.countSeries(ctx, &r, at); err != nil {
				return r, err
			}
		}
	}

	var err error
	if r.Server, err = p.serverVersion(ctx); err != nil {
		return r, err
	}

	metric := memoryMetric
	if r.Metrics[1].Series == 0 {
		metric = cpuMetric
	}

	value, measured, err := p.intervals.scrapeInterval(ctx, metric, at)
	if err != nil {
		return r, err
	}

	if measured {
		r.ScrapeInterval = value.usual
		r.Newest = at.UTC()
	}

	if measured && withHistory {
		if err := p.findOldest(ctx, &r, metric, now); err != nil {
			return r, fmt.Errorf("probing the age of the history: %w", err)
		}
	}

	if measured {
		if err := p.findUnscraped(ctx, &r, at); err != nil {
			return r, err
		}
	}

	if text := explainRenamed(r.Metrics); text != "" {
		r.Warnings = append(r.Warnings, text)
	}

	r.ClockSkew, _ = p.client.serverInfo()
	r.Warnings = append(r.Warnings, p.warnings(r, now)...)
	return r, nil
}

const (
	// metricLabel is the label of counts with the name of their metric: operators between vectors ignore __name__, so that "or" would drop
	// all counts but those of its first operand.
	metricLabel = "metric"
	// renamedLabel is the label of the counts of series whose labels the scrape renamed.
	renamedLabel = "renamed_label"
)

// countSeries counts the series of each metric at a time, and those whose identifying labels the scrape renamed, in one query.
func (p *prober) countSeries(ctx context.Context, r *metrics.SourceReport, at time.Time) error {
	counts, err := p.Instant(ctx, p.expr.presence(r.Metrics), at)
	if err != nil {
		return fmt.Errorf("probing which metrics there are: %w", err)
	}

	for _, c := range counts {
		i := slices.IndexFunc(r.Metrics, func(m metrics.MetricPresence) bool { return m.Metric == c.Labels[metricLabel] })
		if i < 0 {
			continue
		}

		m := &r.Metrics[i]
		if label := c.Labels[renamedLabel]; label != "" {
			m.Renamed = max(m.Renamed, int(c.Value))
			if m.RenamedLabel == "" || label == renamedPrefix+"namespace" {
				m.RenamedLabel = label
			}
		} else {
			m.Series = int(c.Value)
		}
	}

	return nil
}

// presence returns the number of series of each metric, without those with renamed labels, and by label the number of those.
func (x expressions) presence(all []metrics.MetricPresence) string {
	// Metrics with the same identifying labels share a selector.
	byLabels := map[string][]string{}
	byLabel := map[string][]string{}
	for _, m := range all {
		identifying := identifyingLabels(m.Metric)
		key := strings.Join(identifying, ",")
		byLabels[key] = append(byLabels[key], m.Metric)
		for _, name := range identifying {
			byLabel[name] = append(byLabel[name], m.Metric)
		}
	}

	var parts []string
	for _, key := range slices.Sorted(maps.Keys(byLabels)) {
		names := byLabels[key]
		matchers := []Matcher{OneOf("__name__", names)}
		for _, name := range identifyingLabels(names[0]) {
			matchers = append(matchers, Matcher{Label: renamedPrefix + name, Op: "=", Value: ""})
		}

		parts = append(parts, countByMetric(x.selector("", matchers...)))
	}

	for _, name := range slices.Sorted(maps.Keys(byLabel)) {
		sel := x.selector("", OneOf("__name__", byLabel[name]), Matcher{Label: renamedPrefix + name, Op: "!=", Value: ""})
		parts = append(parts, fmt.Sprintf(`label_replace(%s, %q, %q, "", "")`, countByMetric(sel), renamedLabel, renamedPrefix+name))
	}

	return strings.Join(parts, " or ")
}

// countByMetric returns the number of series of each metric, which the label metricLabel names.
func countByMetric(selector string) string {
	return fmt.Sprintf(`label_replace(count by (__name__) (%s), %q, "$1", "__name__", "(.+)")`, selector, metricLabel)
}

// explainRenamed replaces the impact of metrics that are there with renamed labels alone, and returns a warning about all with such
// series; empty without any.
func explainRenamed(all []metrics.MetricPresence) string {
	var names []string
	var renamed []string
	for i, m := range all {
		if m.Renamed == 0 {
			continue
		}

		names = append(names, m.Metric)
		renamed = append(renamed, m.RenamedLabel)
		if m.Series == 0 {
			all[i].Impact = fmt.Sprintf("each of its series has the label %s: set honorLabels: true in its scrape job; until then, %s", m.RenamedLabel, m.Impact)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return fmt.Sprintf("series of %s are ignored: they are scraped without honorLabels, so that the labels of their objects were renamed (%s), "+
		"and would count for the exporter's own namespace and pod; set honorLabels: true in their scrape jobs", strings.Join(names, ", "), strings.Join(sortedSet(renamed), ", "))
}

// findUnscraped finds pods that run and have no usage.
func (p *prober) findUnscraped(ctx context.Context, r *metrics.SourceReport, at time.Time) error {
	list, err := p.Instant(ctx, p.expr.unscraped(), at)
	if err != nil {
		return fmt.Errorf("probing for pods without usage: %w", err)
	}

	for _, s := range list {
		r.UnscrapedPods += int(s.Value)
		r.UnscrapedNodes = append(r.UnscrapedNodes, s.Labels["node"])
	}

	slices.Sort(r.UnscrapedNodes)
	if r.UnscrapedPods > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d running pods have no usage, on nodes %s: their kubelets are not scraped, or the scrape drops their series; "+
			"workloads are sized without them", r.UnscrapedPods, units.FormatFirst(r.UnscrapedNodes, 5)))
	}

	return nil
}

// unscraped returns the number of pods of each node that have run for some time without usage.
func (x expressions) unscraped() string {
	const recent = longestInterval
	running := func(offset string) string {
		return fmt.Sprintf("group by (%s, node) (%s%s)", byPod, x.selector(podInfoMetric, Matcher{Label: "node", Op: "!=", Value: ""}), offset)
	}
	// Pods that have ended stay listed.
	waiting := x.selector(phaseMetric, Matcher{Label: "phase", Op: "=~", Value: "Pending|Succeeded|Failed"})
	return fmt.Sprintf("count by (node) (%s and %s unless on (%s) (%s == 1) unless on (%s) group by (%s) (last_over_time(%s[%s])))",
		running(""), running(" offset "+promDuration(recent)), byPod, waiting, byPod, byPod, x.anyUsage(), promDuration(recent))
}

// serverVersion returns the kind and version of the server; empty where the server does not report them. Only a lost connection is an
// error, as the endpoint is optional.
func (p *prober) serverVersion(ctx context.Context) (string, error) {
	var info struct {
		Application string `json:"application"`
		Version     string `json:"version"`
	}
	err := p.client.fetchJSON(ctx, buildInfoPath, nil, &info)

	var failure *Error
	if err != nil && (!errors.As(err, &failure) || failure.Kind == Unreachable) {
		return "", fmt.Errorf("reading the version of the server: %w", err)
	}

	flavor := info.Application
	if _, host := p.client.serverInfo(); flavor == "" && host != "" {
		flavor = "VictoriaMetrics"
	}
	if flavor == "" && err == nil {
		flavor = "Prometheus or compatible"
	}
	if flavor != "" && info.Version != "" {
		flavor += " " + info.Version
	}

	return sanitize(flavor), nil
}

// findOldest finds the oldest sample: coarsely over two months, then finely before the oldest point found.
func (p *prober) findOldest(ctx context.Context, r *metrics.SourceReport, metric string, now time.Time) error {
	now = now.Truncate(time.Second)
	query := "count(" + p.expr.containers(metric) + ")"

	// VictoriaMetrics rounds the times of longer answers to multiples of the step.
	first := now.Add(-probeHistory).Truncate(probeCoarse)

	oldest, err := p.firstPoint(ctx, query, metrics.Window{Start: first, End: now.Add(time.Second), Step: probeCoarse})
	if err != nil {
		return err
	}

	if oldest.IsZero() {
		oldest = now
	}

	if oldest.Equal(first) {
		r.HistoryTruncated = true
	} else {
		// At whole steps before now, so that a history of whole days is not found some minutes shorter.
		start := now.Add(-(now.Sub(oldest) + probeCoarse).Truncate(probeFine) - probeFine)

		fine, err := p.firstPoint(ctx, query, metrics.Window{Start: start, End: oldest.Add(time.Second), Step: probeFine})
		if err != nil {
			return err
		}

		if !fine.IsZero() {
			oldest = fine
		}
	}

	r.Oldest = oldest.UTC()
	r.History = now.Sub(oldest)
	return nil
}

// firstPoint returns the first time at which a query has a positive value; zero where it has none.
func (p *prober) firstPoint(ctx context.Context, query string, w metrics.Window) (time.Time, error) {
	list, err := p.Range(ctx, query, w)
	if err != nil {
		return time.Time{}, err
	}

	var first time.Time
	for _, l := range list {
		i := slices.IndexFunc(l.Values, func(v float64) bool { return v > 0 })
		if i >= 0 && (first.IsZero() || l.Time(i).Before(first)) {
			first = l.Time(i)
		}
	}

	return first, nil
}

// warnings returns sentences for the user about a report.
func (p *prober) warnings(r metrics.SourceReport, now time.Time) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	// Where all metrics are missing, the cause is the source, and a list of metrics would hide it.
	if len(r.Missing()) == len(r.Metrics) {
		if m := p.expr.extra; len(m) > 0 {
			add("no metric that Crane reads has a series with %s: check the extra labels", selector("", m...))
		} else {
			add("no metric that Crane reads has a series: is this the Prometheus that scrapes the cluster?")
		}
	} else {
		for _, m := range r.Missing() {
			if m.Required {
				add("%s is missing: %s", m.Metric, m.Impact)
			}
		}
	}

	if r.ClockSkew.Abs() > maxClockSkew {
		add("the server's clock differs from ours by %v: recent samples may be cut off; synchronize the clocks", r.ClockSkew.Round(time.Second))
	}
	if age := now.Sub(r.Newest); !r.Newest.IsZero() && age > probeFine {
		add("the newest container sample is %v old: is the cluster still scraped?", age.Round(time.Minute))
	}
	if r.ScrapeInterval > 2*time.Minute {
		add("containers are scraped every %v: peaks in between are not seen", r.ScrapeInterval)
	}

	for _, w := range p.client.statistics().Warnings {
		add("the server warns: %s", sanitize(w))
	}

	return out
}
