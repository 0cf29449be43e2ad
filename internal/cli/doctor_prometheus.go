// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/discover"
)

// Names of the checks of Prometheus.
const (
	checkPrometheus = "Prometheus"
	checkMetrics    = "metrics"
	checkHistory    = "history"
	checkScrape     = "scrape interval"
	checkClock      = "clock"
)

const (
	// coarseScrape is what a scrape interval should not exceed: peaks in between are not seen.
	coarseScrape = 2 * time.Minute
	// clockTolerance is what a scrape and the last step of a reading hide.
	clockTolerance = 2 * time.Minute
	// staleAfter is when the newest sample is suspicious.
	staleAfter = 10 * time.Minute
)

const installPrometheus = "install one, for example the Helm chart kube-prometheus-stack of prometheus-community, which brings all that crane reads; " +
	"or say where it is: --prometheus URL, or --prometheus-service NAMESPACE/NAME[:PORT][/PATH]"

// lookAtPrometheus finds the server, asks what it holds, and says what each gap costs.
func (d *diagnosis) lookAtPrometheus(ctx context.Context, withCluster bool) {
	p := d.options.prometheus
	if p.address == "" && !withCluster {
		d.add(checkPrometheus, statusMissing, "no address is given, and no cluster to look in", "give --prometheus URL (or $"+envAddress+")")
		return
	}
	var notes []string
	if err := p.locate(ctx, d.options.kubernetes, func(text string) { notes = append(notes, text) }); err != nil {
		d.addNotFound(err)
		return
	}
	source, err := p.open()
	if err != nil {
		d.add(checkPrometheus, statusMissing, err.Error(), "correct the flags")
		return
	}
	report, err := source.Probe(ctx)
	if err != nil {
		reason := err.Error()
		if p.found != nil {
			reason = p.throughProxy(err)
		}
		d.add(checkPrometheus, statusMissing, reason, "check the address, the credentials (--prometheus-username, --prometheus-token-file) and the network")
		return
	}
	detail := p.server()
	if report.Server != "" {
		detail += ", " + report.Server
	}
	d.add(checkPrometheus, statusOK, detail, strings.Join(notes, " "))
	d.lookAtMetrics(report, withCluster)
	if report.Newest.IsZero() {
		return
	}
	d.lookAtHistory(report)
	d.lookAtScrape(report)
	d.lookAtClock(report)
}

func (d *diagnosis) addNotFound(err error) {
	var none *notFoundError
	if !errors.As(err, &none) {
		d.add(checkPrometheus, statusMissing, err.Error(), "say where it is: --prometheus URL, or --prometheus-service NAMESPACE/NAME[:PORT][/PATH]")
		return
	}
	if len(none.attempts) == 0 {
		d.add(checkPrometheus, statusMissing, "not found: no service of any namespace has the labels or the name of "+strings.Join(discover.ServerNames(), ", "), installPrometheus)
		return
	}
	for _, a := range none.attempts {
		d.add(checkPrometheus, statusMissing, fmt.Sprintf("service %s: %s", a.service, a.reason), "see that it runs and scrapes the kubelets (/metrics/cadvisor), or name another: "+howToSay)
	}
}

// lookAtMetrics has a line for each metric that is missing, so that each has its cost beside it.
func (d *diagnosis) lookAtMetrics(report metrics.SourceReport, withCluster bool) {
	missing := report.Missing()
	d.add(checkMetrics, statusOK, fmt.Sprintf("%d of the %d that crane reads are there", len(report.Metrics)-len(missing), len(report.Metrics)), "")
	if len(missing) == len(report.Metrics) {
		d.checks[len(d.checks)-1].Status = statusMissing
		d.checks[len(d.checks)-1].Advice = "this Prometheus scrapes no cluster, or --prometheus-labels leave nothing: scrape the kubelets' /metrics/cadvisor and kube-state-metrics, or name another"
		return
	}
	exported := slices.ContainsFunc(report.Metrics, func(m metrics.MetricPresence) bool { return m.Series > 0 && strings.HasPrefix(m.Metric, "kube_") })
	for _, m := range missing {
		if exported && absentAtTimes(m.Metric) {
			d.add(m.Metric, statusOK, "nothing of the kind now: "+m.Impact, "")
			continue
		}
		severity := statusWarn
		if m.Required || !withCluster && m.Metric == containerInfo {
			severity = statusMissing
		}
		d.add(m.Metric, severity, m.Impact, exporterOf(m.Metric))
	}
	for _, w := range report.Warnings {
		if strings.Contains(w, "honorLabels") {
			d.add("labels of kube-state-metrics", statusWarn, w, "set honorLabels: true in the ServiceMonitor or honor_labels: true in the scrape job")
		}
	}
}

// absentAtTimes are metrics of things that a cluster need not have: where kube-state-metrics exports others they say that
// there is none.
func absentAtTimes(metric string) bool {
	return slices.Contains([]string{
		"kube_job_owner", "kube_replicaset_owner", "kube_horizontalpodautoscaler_info", "kube_horizontalpodautoscaler_spec_target_metric",
		"kube_pod_container_status_last_terminated_reason",
	}, metric)
}

// containerInfo is what the workloads are listed from where there is no cluster to ask.
const containerInfo = "kube_pod_container_info"

// exporterOf says what exports a metric, by the prefix of its name.
func exporterOf(metric string) string {
	switch {
	case strings.HasPrefix(metric, "container_"):
		return "scrape the kubelets' /metrics/cadvisor, and do not drop it by metric_relabel_configs"
	case metric == "kube_node_labels":
		return "start kube-state-metrics with --metric-labels-allowlist=nodes=[*]"
	case strings.HasPrefix(metric, "kube_"):
		return "install kube-state-metrics and scrape it with honor_labels"
	}
	return "install node-exporter and scrape it"
}

func (d *diagnosis) lookAtHistory(report metrics.SourceReport) {
	policy := d.options.policy
	window := max(policy.CPU.Window, policy.Memory.Window)
	detail := days(report.History) + " back"
	if report.HistoryTruncated {
		detail = "at least " + detail
	}
	switch {
	case report.History < policy.MinHistory && !report.HistoryTruncated:
		d.add(checkHistory, statusMissing, fmt.Sprintf("%s; policy %s wants %s before it gives a number", detail, policy.Name, days(policy.MinHistory)),
			"wait, or raise Prometheus's retention, or take less with --history and mind the risk")
	case report.History < window && !report.HistoryTruncated:
		d.add(checkHistory, statusWarn, fmt.Sprintf("%s; policy %s looks %s back", detail, policy.Name, days(window)),
			"raise Prometheus's retention (--storage.tsdb.retention.time) to see rare peaks")
	default:
		d.add(checkHistory, statusOK, fmt.Sprintf("%s; policy %s looks %s back", detail, policy.Name, days(window)), "")
	}
	if age := d.now.Sub(report.Newest); age > staleAfter {
		d.add("newest sample", statusWarn, fmt.Sprintf("%v old", age.Round(time.Minute)), "see whether the cluster is still scraped: up{} in Prometheus")
	}
}

// days rounds down: a history is not longer than it is.
func days(length time.Duration) string {
	const day = 24 * time.Hour
	if length < day {
		return fmt.Sprintf("%d hours", int(length.Hours()))
	}
	return fmt.Sprintf("%.4g days", math.Floor(10*length.Hours()/24)/10)
}

func (d *diagnosis) lookAtScrape(report metrics.SourceReport) {
	if report.ScrapeInterval > coarseScrape {
		d.add(checkScrape, statusWarn, fmt.Sprintf("%v: peaks in between are not seen", report.ScrapeInterval), "scrape the kubelets every 30s or 60s")
		return
	}
	d.add(checkScrape, statusOK, shortDuration(report.ScrapeInterval), "")
}

func (d *diagnosis) lookAtClock(report metrics.SourceReport) {
	skew := report.ClockSkew.Round(time.Second)
	if skew.Abs() > clockTolerance {
		d.add(checkClock, statusWarn, fmt.Sprintf("the server's differs from ours by %v", skew), "synchronise the clocks; recent samples may be cut off")
		return
	}
	d.add(checkClock, statusOK, fmt.Sprintf("the server's differs from ours by %v", skew), "")
}

// shortDuration writes 1m for 1m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
