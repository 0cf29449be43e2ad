// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/kube/installation"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/discover"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/pkg/units"
)

// Names of the Prometheus checks.
const (
	checkPrometheus  = "Prometheus"
	checkMetrics     = "metrics"
	checkKills       = "OOM kills"
	checkClusters    = "clusters"
	checkMetricRules = "metric rules"
	checkHistory     = "history"
	checkScrape      = "scrape interval"
	checkClock       = "clock"
)

const (
	// maxScrapeInterval is the recommended maximum of the scrape interval, above which short peaks are missed.
	maxScrapeInterval = 2 * time.Minute
	// clockTolerance is the skew that scrapes and the last step of a query can cause.
	clockTolerance = 2 * time.Minute
	// staleAfter is the age of the newest sample that causes a warning.
	staleAfter = 10 * time.Minute
)

const installPrometheus = "install one, for example the Helm chart kube-prometheus-stack of prometheus-community, which exports all required metrics; " +
	"or set --prometheus URL or --prometheus-service NAMESPACE/NAME[:PORT][/PATH]"

// checkServer discovers the server and checks its metrics, history, scrape interval and clock.
func (d *diagnosis) checkServer(ctx context.Context, withCluster bool) {
	p := d.options.prometheus
	if p.Address == "" && !withCluster {
		d.add(checkPrometheus, installation.Missing, "no address is set, and there is no cluster for discovery", "set --prometheus URL (or $"+historyserver.EnvAddress+")")
		return
	}

	var notes []string
	if err := p.Discover(ctx, d.options.kubernetes, func(text string) { notes = append(notes, text) }); err != nil {
		d.addServerNotFound(err)
		return
	}

	source, err := p.Open()
	if err != nil {
		d.add(checkPrometheus, installation.Missing, err.Error(), "correct the flags")
		return
	}

	report, err := source.Probe(ctx)
	if err != nil {
		reason := err.Error()
		if p.Discovered != nil {
			reason = p.DescribeProxyError(err)
		}

		d.add(checkPrometheus, installation.Missing, reason, "check the address, the credentials (--prometheus-username, --prometheus-token-file) and the network")
		return
	}

	detail := p.Name()
	if report.Server != "" {
		detail += ", " + report.Server
	}

	d.add(checkPrometheus, installation.OK, detail, strings.Join(notes, " "))
	d.checkMetrics(report, withCluster)
	d.checkKills(report)
	d.checkClusters(source.CheckClusters(ctx))
	d.checkMetricRules(ctx, source)

	// Without samples, the other checks would only repeat that.
	if report.Newest.IsZero() {
		return
	}

	d.checkHistory(report)
	d.checkScrapeInterval(report)
	d.checkClockSkew(report)
}

func (d *diagnosis) addServerNotFound(err error) {
	var none *historyserver.NotFoundError
	if !errors.As(err, &none) {
		d.add(checkPrometheus, installation.Missing, err.Error(), "set --prometheus URL or --prometheus-service NAMESPACE/NAME[:PORT][/PATH]")
		return
	}
	if len(none.Rejected) == 0 && none.Unproven == "" {
		d.add(checkPrometheus, installation.Missing, "not found: no service has the labels or the name of "+strings.Join(discover.ServerNames(), ", "), installPrometheus)
		return
	}

	if none.Unproven != "" {
		d.add(checkPrometheus, installation.Missing, "not used: "+none.Unproven, "name the service: --prometheus-service NAMESPACE/NAME[:PORT][/PATH], or set --prometheus URL")
	}

	for _, a := range none.Rejected {
		d.add(checkPrometheus, installation.Missing, fmt.Sprintf("service %s: %s", a.Service, a.Reason), "check that it runs and scrapes the kubelets (/metrics/cadvisor), or set another: "+historyserver.ConfigureServerHint)
	}
}

// checkMetrics adds one line per missing metric with its impact.
func (d *diagnosis) checkMetrics(report metrics.SourceReport, withCluster bool) {
	missing := report.Missing()
	d.add(checkMetrics, installation.OK, fmt.Sprintf("%d of %d required metrics are present", len(report.Metrics)-len(missing), len(report.Metrics)), "")

	if len(missing) == len(report.Metrics) {
		d.checks[len(d.checks)-1].Status = installation.Missing
		d.checks[len(d.checks)-1].Advice = "this Prometheus scrapes no cluster, or --prometheus-labels match no series: scrape the kubelets' /metrics/cadvisor and kube-state-metrics, or set another server"
		return
	}

	// kube-state-metrics exports no series of kinds without objects.
	exported := slices.ContainsFunc(report.Metrics, func(m metrics.MetricPresence) bool { return m.Series > 0 && strings.HasPrefix(m.Metric, "kube_") })
	for _, m := range missing {
		if exported && mayBeAbsent(m.Metric) && m.Renamed == 0 {
			d.add(m.Metric, installation.OK, "no such object at present: "+m.Impact, "")
			continue
		}

		severity := installation.Warn
		if m.Required || !withCluster && m.Metric == containerInfo {
			severity = installation.Missing
		}

		d.add(m.Metric, severity, m.Impact, exporterAdvice(m.Metric))
	}

	for _, w := range report.Warnings {
		if strings.Contains(w, "honorLabels") {
			d.add("renamed labels", installation.Warn, w, "set honorLabels: true in the ServiceMonitor or honor_labels: true in the scrape job")
		}
		if strings.Contains(w, "have no usage") {
			d.add("pods without usage", installation.Warn, w, "scrape the kubelets' /metrics/cadvisor of these nodes, and drop no series of their namespaces")
		}
	}
}

// ineffectiveRules are the rules of prometheus-adapter's configuration without effect, as the metric adapter and craned export them.
const ineffectiveRules = `max by (rule, reason) ({__name__=~"crane_metric_adapter_rule_without_effect|crane_autoscaling_rule_without_effect"})`

// checkMetricRules names each rule of prometheus-adapter's configuration that defines no metric.
func (d *diagnosis) checkMetricRules(ctx context.Context, source metrics.Querier) {
	samples, err := source.Instant(ctx, ineffectiveRules, d.now)
	if err != nil {
		d.add(checkMetricRules, installation.Warn, "whether all rules have an effect is unknown: "+err.Error(), "")
		return
	}

	meaning := map[string][2]string{
		promadapter.ReasonNotListed: {"cannot be listed: Prometheus refuses its seriesQuery, or it finds too many names", "the log of metric-adapter has the reason: add a condition to its seriesQuery"},
		promadapter.ReasonRefused:   {"is invalid and left out", "the log of metric-adapter and the condition MetricRulesReady of EffectiveHPAs have the reason: correct the rule"},
		promadapter.ReasonNoSeries:  {"finds no series", "check its seriesQuery in Prometheus, or set --metrics-max-age above the interval between two samples"},
		promadapter.ReasonNoMatch:   {"finds series, and its filters and name leave none", "check its seriesFilters and name.matches"},
	}

	for _, s := range samples {
		text := meaning[s.Labels["reason"]]
		d.add(checkMetricRules, installation.Warn, s.Labels["rule"]+" of prometheus-adapter's configuration "+cmp.Or(text[0], "has no effect"), text[1])
	}
}

// checkKills adds a line with the kinds of OOM kills that the history shows, by the metrics that are there.
func (d *diagnosis) checkKills(report metrics.SourceReport) {
	kinds := []struct{ metric, kind string }{
		{"kube_pod_container_status_last_terminated_reason", "containers that restart"},
		{"kube_pod_container_status_terminated_reason", "containers that do not restart, as of Jobs"},
		{"kube_pod_init_container_status_last_terminated_reason", "sidecars and init containers"},
		{"kube_pod_container_status_restarts_total", "each further kill of a container"},
		{"container_oom_events_total", "processes in a container that goes on"},
	}

	exported := map[string]bool{}
	state := false
	for _, m := range report.Metrics {
		exported[m.Metric] = m.Series > 0
		state = state || m.Series > 0 && strings.HasPrefix(m.Metric, "kube_pod_")
	}

	var visible, unproven, hidden []string
	advice := ""
	for _, k := range kinds {
		switch {
		case exported[k.metric]:
			visible = append(visible, k.kind)
		case state && mayBeAbsent(k.metric):
			unproven = append(unproven, k.kind)
		default:
			hidden = append(hidden, k.kind)
			advice = cmp.Or(advice, exporterAdvice(k.metric))
		}
	}

	var parts []string
	add := func(text string, kinds []string) {
		if len(kinds) > 0 {
			parts = append(parts, text+strings.Join(kinds, ", "))
		}
	}
	add("visible: ", visible)
	add("visible once there is one, unless the metric is dropped: ", unproven)
	add("not visible: ", hidden)

	status := installation.OK
	if len(hidden) > 0 {
		status = installation.Warn
	}

	d.add(checkKills, status, strings.Join(parts, "; "), advice)
}

// checkClusters adds a line if the series of several clusters are mixed.
func (d *diagnosis) checkClusters(mixed error) {
	if mixed != nil {
		d.add(checkClusters, installation.Missing, mixed.Error(), "set --prometheus-labels for crane and --extension-labels for craned")
	}
}

// mayBeAbsent reports whether a metric describes optional objects. If kube-state-metrics exports other metrics, their
// absence means that there is no such object.
func mayBeAbsent(metric string) bool {
	return slices.Contains([]string{
		"kube_job_owner", "kube_replicaset_owner", "kube_horizontalpodautoscaler_info", "kube_horizontalpodautoscaler_spec_target_metric",
		"kube_pod_container_status_last_terminated_reason", "kube_pod_container_status_terminated_reason",
		"kube_pod_init_container_status_last_terminated_reason", "kube_pod_init_container_status_restarts_total",
	}, metric)
}

// containerInfo is the metric of the workload list without a cluster.
const containerInfo = "kube_pod_container_info"

// exporterAdvice returns how to export a metric, by the prefix of its name.
func exporterAdvice(metric string) string {
	switch {
	case strings.HasPrefix(metric, "container_"):
		return "scrape the kubelets' /metrics/cadvisor and do not drop the metric in metric_relabel_configs"
	case metric == "kube_node_labels":
		return "start kube-state-metrics with --metric-labels-allowlist=nodes=[*]"
	case strings.HasPrefix(metric, "kube_"):
		return "install kube-state-metrics and scrape it with honor_labels"
	}

	return "install node-exporter and scrape it"
}

func (d *diagnosis) checkHistory(report metrics.SourceReport) {
	policy := d.options.policy
	window := max(policy.CPU.Window, policy.Memory.Window)

	detail := days(report.History)
	if report.HistoryTruncated {
		detail = "at least " + detail
	}

	switch {
	case report.History < policy.MinHistory && !report.HistoryTruncated:
		d.add(checkHistory, installation.Missing, fmt.Sprintf("%s; policy %s requires at least %s", detail, policy.Name, days(policy.MinHistory)),
			"wait, increase Prometheus's retention, or accept a shorter --history")
	case report.History < window && !report.HistoryTruncated:
		d.add(checkHistory, installation.Warn, fmt.Sprintf("%s; policy %s uses %s", detail, policy.Name, days(window)),
			"increase Prometheus's retention (--storage.tsdb.retention.time) to include rare peaks")
	default:
		d.add(checkHistory, installation.OK, fmt.Sprintf("%s; policy %s uses %s", detail, policy.Name, days(window)), "")
	}

	if age := d.now.Sub(report.Newest); age > staleAfter {
		d.add("newest sample", installation.Warn, fmt.Sprintf("%v old", age.Round(time.Minute)), "check whether the cluster is still scraped: up{} in Prometheus")
	}
}

// days formats a duration, rounded down.
func days(length time.Duration) string {
	const day = 24 * time.Hour
	if length < day {
		return fmt.Sprintf("%d hours", int(length.Hours()))
	}

	return fmt.Sprintf("%.4g days", math.Floor(10*length.Hours()/24)/10)
}

func (d *diagnosis) checkScrapeInterval(report metrics.SourceReport) {
	if report.ScrapeInterval > maxScrapeInterval {
		d.add(checkScrape, installation.Warn, fmt.Sprintf("%v: short peaks are missed", report.ScrapeInterval), "scrape the kubelets every 30s or 60s")
		return
	}

	d.add(checkScrape, installation.OK, units.FormatShortDuration(report.ScrapeInterval), "")
}

func (d *diagnosis) checkClockSkew(report metrics.SourceReport) {
	skew := report.ClockSkew.Round(time.Second)
	if skew.Abs() > clockTolerance {
		d.add(checkClock, installation.Warn, fmt.Sprintf("the server's clock differs from the local clock by %v", skew), "synchronize the clocks; recent samples may be missing")
		return
	}

	d.add(checkClock, installation.OK, fmt.Sprintf("the server's clock differs from the local clock by %v", skew), "")
}
