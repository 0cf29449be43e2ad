// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

var _ metrics.AggregateReader = (*Source)(nil)

// Metrics of node-exporter and kube-state-metrics that say what a node uses.
const (
	nodeCPUMetric       = "node_cpu_seconds_total"
	nodeTotalMetric     = "node_memory_MemTotal_bytes"
	nodeAvailableMetric = "node_memory_MemAvailable_bytes"
	nodeInfoMetric      = "kube_node_info"
)

// WorkloadUsage implements metrics.AggregateReader.
func (s *Source) WorkloadUsage(ctx context.Context, req metrics.WorkloadsRequest) (map[string]series.Series, error) {
	metric, err := usageMetric(req.Resource)
	if err != nil {
		return nil, err
	}
	if req.Namespace == "" || req.Kind == "" || len(req.Names) == 0 {
		return nil, fmt.Errorf("usage of workloads: want a namespace, a kind and names, got %q, %q and %d names",
			req.Namespace, req.Kind, len(req.Names))
	}
	scrape, _, err := s.scrapeInterval(ctx, metric, req.Window.End)
	if err != nil {
		return nil, err
	}
	query := s.workloadExpr(metric, planGrid(metric, scrape, req.Window.Step), req)
	out, err := s.sums(ctx, query, "workload", req.Window)
	if err != nil {
		return nil, fmt.Errorf("%s of %d workloads of kind %s in %s: %w", req.Resource, len(req.Names), req.Kind, req.Namespace, err)
	}
	return out, nil
}

// workloadExpr sums the use of the pods of each workload: of those that kube-state-metrics knows the owner of by that,
// and of the others by their names.
func (s *Source) workloadExpr(metric string, g gridPlan, req metrics.WorkloadsRequest) string {
	in := Matcher{Label: "namespace", Op: "=", Value: req.Namespace}
	if req.Kind == "Pod" {
		use := s.usageExpr(metric, g, in, oneOf("pod", req.Names))
		return fmt.Sprintf(`sum by (workload) (label_replace(%s, "workload", "$1", "pod", "(.*)"))`, use)
	}
	use := s.usageExpr(metric, g, append([]Matcher{in}, podPrefixMatchers(req.Kind, req.Names)...)...)
	owned := fmt.Sprintf("%s * on (namespace, pod) group_left (workload) %s", use, s.ownedPods(in, req))
	named, ok := podNamePattern(req.Kind, req.Names)
	if !ok {
		return "sum by (workload) (" + owned + ")"
	}
	all := selector(podOwnerMetric, s.matchers(in)...)
	byName := fmt.Sprintf(`label_replace(%s, "workload", "$1", "pod", %s) unless on (namespace, pod) %s`,
		s.usageExpr(metric, g, in, Matcher{Label: "pod", Op: "=~", Value: named}), strconv.Quote(named), all)
	return fmt.Sprintf("sum by (workload) ((%s) or (%s))", owned, byName)
}

// ownedPods is 1 for each pod of the workloads, with the label workload.
func (s *Source) ownedPods(in Matcher, req metrics.WorkloadsRequest) string {
	controller := Matcher{Label: "owner_is_controller", Op: "!=", Value: "false"}
	by := func(kind string, more ...Matcher) string {
		own := append([]Matcher{in, {Label: "owner_kind", Op: "=", Value: kind}, controller}, more...)
		return selector(podOwnerMetric, s.matchers(own...)...)
	}
	names := oneOf("owner_name", req.Names)
	direct := fmt.Sprintf(`max by (namespace, pod, workload) (label_replace(%s, "workload", "$1", "owner_name", "(.*)"))`, by(req.Kind, names))
	through := func(kind, metric, label string) string {
		upper := selector(metric, s.matchers(in, Matcher{Label: "owner_kind", Op: "=", Value: req.Kind}, names)...)
		return fmt.Sprintf(`max by (namespace, pod, workload) (label_replace(%s, "%s", "$1", "owner_name", "(.*)") `+
			`* on (namespace, %s) group_left (workload) max by (namespace, %s, workload) (label_replace(%s, "workload", "$1", "owner_name", "(.*)")))`,
			by(kind), label, label, label, upper)
	}
	replicaSets := func() string { return through("ReplicaSet", replicaSetOwnerMetric, "replicaset") }
	jobs := func() string { return through("Job", jobOwnerMetric, "job_name") }
	switch req.Kind {
	case "Deployment":
		return replicaSets()
	case "CronJob":
		return jobs()
	case "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "ReplicationController":
		return direct
	}
	return fmt.Sprintf("(%s or %s or %s)", direct, replicaSets(), jobs())
}

// maxNamePrefix is how much of the name of a workload is sure to begin the names of its pods: Kubernetes cuts generated
// names to 63 characters, some of which are its own.
const maxNamePrefix = 40

// podPrefixMatchers narrows the pods down to those whose name begins like the workload's. It spares the server work and decides
// nothing, so it is left out for kinds that may name their pods in other ways.
func podPrefixMatchers(kind string, names []string) []Matcher {
	if _, known := podNamePattern(kind, names); !known {
		return nil
	}
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = regexp.QuoteMeta(n[:min(len(n), maxNamePrefix)])
	}
	return []Matcher{{Label: "pod", Op: "=~", Value: "(" + strings.Join(parts, "|") + ").*"}}
}

// podNamePattern is the pattern of the names of the pods of built-in kinds; its first group is the workload.
func podNamePattern(kind string, names []string) (string, bool) {
	tails := map[string]string{
		"Deployment":            "-[a-z0-9]{1,10}-[a-z0-9]{5}",
		"ReplicaSet":            "-[a-z0-9]{5}",
		"ReplicationController": "-[a-z0-9]{5}",
		"DaemonSet":             "-[a-z0-9]{5}",
		"Job":                   "-(?:[0-9]+-)?[a-z0-9]{5}",
		"CronJob":               "-[0-9]{8,10}-(?:[0-9]+-)?[a-z0-9]{5}",
		"StatefulSet":           "-[0-9]+",
	}
	tail, ok := tails[kind]
	if !ok {
		return "", false
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return "(" + strings.Join(quoted, "|") + ")" + tail, true
}

// NodeUsage implements metrics.AggregateReader. A node is found by the instance of its node-exporter, which is the name
// or the address of the node, or by a label node.
func (s *Source) NodeUsage(ctx context.Context, req metrics.NodesRequest) (map[string]series.Series, error) {
	if len(req.Names) == 0 {
		return nil, errors.New("usage of nodes: no names")
	}
	var query string
	switch req.Resource {
	case metrics.CPU:
		scrape, _, err := s.scrapeInterval(ctx, cpuMetric, req.Window.End)
		if err != nil {
			return nil, err
		}
		window := openRange(planGrid(cpuMetric, scrape, req.Window.Step).window)
		idle := func(more ...Matcher) string {
			own := append([]Matcher{{Label: "mode", Op: "=", Value: "idle"}}, more...)
			return "rate(" + selector(nodeCPUMetric, s.matchers(own...)...) + "[" + window + "])"
		}
		query = fmt.Sprintf("sum by (node) (clamp_min(1 - max by (node, cpu) (%s), 0))", s.onNodes(idle, req.Names))
	case metrics.Memory:
		used := func(more ...Matcher) string {
			return "(" + selector(nodeTotalMetric, s.matchers(more...)...) + " - " + selector(nodeAvailableMetric, s.matchers(more...)...) + ")"
		}
		query = fmt.Sprintf("max by (node) (%s)", s.onNodes(used, req.Names))
	default:
		return nil, fmt.Errorf("resource %q: want %s or %s", req.Resource, metrics.CPU, metrics.Memory)
	}
	out, err := s.sums(ctx, query, "node", req.Window)
	if err != nil {
		return nil, fmt.Errorf("%s of %d nodes: %w", req.Resource, len(req.Names), err)
	}
	return out, nil
}

// onNodes selects the series of nodes in three ways, and gives them the label node: the instance is the name of the node,
// there is a label node, or the instance is the address that kube-state-metrics knows the node by. An address that several
// nodes have says nothing of either; the server would refuse the whole query for it.
func (s *Source) onNodes(expr func(...Matcher) string, names []string) string {
	const port = "(?::[0-9]+)?"
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	instance := "(" + strings.Join(quoted, "|") + ")" + port
	byInstance := fmt.Sprintf(`label_replace(%s, "node", "$1", "instance", %s)`,
		expr(Matcher{Label: "instance", Op: "=~", Value: instance}), strconv.Quote(instance))
	byLabel := expr(oneOf("node", names))
	known := selector(nodeInfoMetric, s.matchers(oneOf("node", names))...)
	one := fmt.Sprintf("(count by (internal_ip) (count by (internal_ip, node) (%s)) == 1)", selector(nodeInfoMetric, s.matchers()...))
	byAddress := fmt.Sprintf(`label_replace(%s, "internal_ip", "$1", "instance", "(.+?)%s") * on (internal_ip) group_left (node) (max by (internal_ip, node) (%s) and on (internal_ip) %s)`,
		expr(), port, known, one)
	return fmt.Sprintf("(%s) or (%s) or (%s)", byInstance, byLabel, byAddress)
}

// sums reads an expression whose value at t is the use in (t-step, t], one series for each value of a label.
func (s *Source) sums(ctx context.Context, query, label string, w metrics.Window) (map[string]series.Series, error) {
	late := metrics.Window{Start: w.Start.Add(w.Step), End: w.End.Add(w.Step), Step: w.Step}
	if now := s.now(); late.End.After(now.Add(time.Second)) {
		late.End = now.Add(time.Second) // an end is exclusive
	}
	if !late.Start.Before(late.End) {
		return nil, nil
	}
	found, err := s.Range(ctx, query, late)
	if err != nil {
		return nil, err
	}
	out := make(map[string]series.Series, len(found))
	for _, f := range found {
		f.Start = f.Start.Add(-w.Step)
		out[f.Labels[label]] = f.Series
	}
	return out, nil
}

// Selector writes a selector of a metric for a query of its own, with the matchers of the configuration added, so that
// names, quotes and braces in it stay what they are.
func (s *Source) Selector(metric string, own ...Matcher) (string, error) {
	if metric == "" {
		return "", errors.New("the name of the metric is empty")
	}
	all := s.matchers(own...)
	for _, m := range all {
		if err := m.Validate(); err != nil {
			return "", err
		}
	}
	if !metricName.MatchString(metric) {
		return selector("", append([]Matcher{{Label: "__name__", Op: "=", Value: metric}}, all...)...), nil
	}
	return selector(metric, all...), nil
}

var metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
