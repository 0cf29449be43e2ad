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
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Metrics of node-exporter and kube-state-metrics about the usage of nodes.
const (
	nodeCPUMetric       = "node_cpu_seconds_total"
	nodeTotalMetric     = "node_memory_MemTotal_bytes"
	nodeAvailableMetric = "node_memory_MemAvailable_bytes"
	nodeInfoMetric      = "kube_node_info"
)

// aggregateReader implements metrics.AggregateReader.
type aggregateReader struct {
	*queries

	intervals *intervalDetector
	clusters  *clusterCheck
}

// WorkloadUsage implements metrics.AggregateReader.
func (a *aggregateReader) WorkloadUsage(ctx context.Context, req metrics.WorkloadsRequest) (map[string]series.Series, error) {
	metric, err := usageMetric(req.Resource)
	if err != nil {
		return nil, err
	}

	if req.Namespace == "" || req.Kind == "" || len(req.Names) == 0 {
		return nil, fmt.Errorf("usage of workloads: must have a namespace, a kind and names, got %q, %q and %d names",
			req.Namespace, req.Kind, len(req.Names))
	}

	if _, err := a.clusters.narrow(ctx, newScope([]string{req.Namespace})); err != nil {
		return nil, err
	}

	scrape, _, err := a.intervals.scrapeInterval(ctx, metric, req.Window.End)
	if err != nil {
		return nil, err
	}

	query := plausibleSum("workload", a.expr.workloads(metric, planGrid(metric, scrape, req.Window.Step), req), largestNode(a.expr, req.Resource))
	out, err := a.sums(ctx, query, "workload", req.Window)
	if err != nil {
		return nil, fmt.Errorf("%s of %d workloads of kind %s in %s: %w", req.Resource, len(req.Names), req.Kind, req.Namespace, err)
	}

	return out, nil
}

// NodeUsage implements metrics.AggregateReader. A node is identified by the instance of its node-exporter, which is the name or the address
// of the node, or by a label node.
func (a *aggregateReader) NodeUsage(ctx context.Context, req metrics.NodesRequest) (map[string]series.Series, error) {
	if len(req.Names) == 0 {
		return nil, errors.New("usage of nodes: no names")
	}

	var query string
	switch req.Resource {
	case metrics.CPU:
		scrape, _, err := a.intervals.scrapeInterval(ctx, cpuMetric, req.Window.End)
		if err != nil {
			return nil, err
		}

		// Usage is what the idle counter leaves of each CPU; a node has one such counter per CPU.
		window := openRange(planGrid(cpuMetric, scrape, req.Window.Step).window)
		idle := func(more ...Matcher) string {
			matchers := append([]Matcher{{Label: "mode", Op: "=", Value: "idle"}}, more...)
			return "rate(" + a.expr.selector(nodeCPUMetric, matchers...) + "[" + window + "])"
		}
		cpus := fmt.Sprintf("max by (node, cpu) (%s)", a.expr.onNodes(idle, req.Names))
		// A counter of idle time that goes back by a little reads as an idle node.
		query = fmt.Sprintf("sum by (node) (clamp_min(1 - %s, 0)) unless max by (node) (%s) > %v", cpus, cpus, maxIdle)

	case metrics.Memory:
		used := func(more ...Matcher) string {
			return "(" + a.expr.selector(nodeTotalMetric, more...) + " - " + a.expr.selector(nodeAvailableMetric, more...) + ")"
		}
		query = fmt.Sprintf("max by (node) (%s) >= 0", a.expr.onNodes(used, req.Names))

	default:
		return nil, fmt.Errorf("resource %q: must be %s or %s", req.Resource, metrics.CPU, metrics.Memory)
	}

	out, err := a.sums(ctx, query, "node", req.Window)
	if err != nil {
		return nil, fmt.Errorf("%s of %d nodes: %w", req.Resource, len(req.Names), err)
	}

	return out, nil
}

// sums evaluates an expression whose value at t is the usage in (t-step, t], with one series per value of a label.
func (a *aggregateReader) sums(ctx context.Context, query, label string, w metrics.Window) (map[string]series.Series, error) {
	shifted := metrics.Window{Start: w.Start.Add(w.Step), End: w.End.Add(w.Step), Step: w.Step}
	if now := a.now(); shifted.End.After(now.Add(time.Second)) {
		shifted.End = now.Add(time.Second) // The end is exclusive.
	}

	if !shifted.Start.Before(shifted.End) {
		return nil, nil
	}

	found, err := a.Range(ctx, query, shifted)
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

// maxIdle is the rate of a counter of idle time above which the counter went back: one CPU is idle for a second per second, and a rate is
// extrapolated to its window.
const maxIdle = 1.1

// plausibleSum returns the sum by a label of an expression, without the sums of which a part is above a bound. A part that is no measurement is not
// left out alone, because the sum of the other parts is less than the usage.
func plausibleSum(label, expr, bound string) string {
	return fmt.Sprintf("sum by (%s) (%s) unless max by (%s) (%s) > %s", label, expr, label, expr, bound)
}

// largestNode returns the amount of a resource that a container could use at most: that of the largest node or, where nodes are unknown, the
// amount that no machine has.
func largestNode(x expressions, resource metrics.UsageKind) string {
	most := map[metrics.UsageKind]float64{metrics.CPU: rightsize.MaxCores, metrics.Memory: rightsize.MaxBytes}[resource]
	largest := func(metric string) string {
		return x.latest(metric, "resource", Matcher{Label: "resource", Op: "=", Value: string(resource)})
	}

	return fmt.Sprintf("scalar(max(%s or %s) * %v or vector(%.0f))", largest(capacityMetric), largest(allocatableMetric), metrics.NodeTolerance, most)
}

// workloads returns the usage of the containers of each workload, with the label workload. Pods with an owner in kube-state-metrics are matched by
// the owner, all others by name.
func (x expressions) workloads(metric string, g gridPlan, req metrics.WorkloadsRequest) string {
	in := Matcher{Label: "namespace", Op: "=", Value: req.Namespace}
	if req.Kind == "Pod" {
		return fmt.Sprintf(`label_replace(%s, "workload", "$1", "pod", "(.*)")`, x.usage(metric, g, in, OneOf("pod", req.Names)))
	}

	usage := x.usage(metric, g, append([]Matcher{in}, podPrefixMatchers(req.Kind, req.Names)...)...)
	owned := fmt.Sprintf("%s * on (namespace, pod) group_left (workload) %s", usage, x.ownedPods(in, req))

	pattern, ok := podNamePattern(req.Kind, req.Names)
	if !ok {
		return owned
	}

	byName := fmt.Sprintf(`label_replace(%s, "workload", "$1", "pod", %s) unless on (namespace, pod) %s`,
		x.usage(metric, g, in, Matcher{Label: "pod", Op: "=~", Value: pattern}), strconv.Quote(pattern), x.selector(podOwnerMetric, in))
	return fmt.Sprintf("(%s) or (%s)", owned, byName)
}

// ownedPods returns 1 for each pod of the workloads, with the label workload.
func (x expressions) ownedPods(in Matcher, req metrics.WorkloadsRequest) string {
	controller := Matcher{Label: "owner_is_controller", Op: "!=", Value: "false"}
	ownedBy := func(kind string, more ...Matcher) string {
		matchers := append([]Matcher{in, {Label: "owner_kind", Op: "=", Value: kind}, controller}, more...)
		return x.selector(podOwnerMetric, matchers...)
	}
	names := OneOf("owner_name", req.Names)
	direct := fmt.Sprintf(`max by (namespace, pod, workload) (label_replace(%s, "workload", "$1", "owner_name", "(.*)"))`, ownedBy(req.Kind, names))

	// The pods of a Deployment or CronJob belong to it through an object in between.
	through := func(kind, metric, label string) string {
		upper := x.selector(metric, in, Matcher{Label: "owner_kind", Op: "=", Value: req.Kind}, names)
		return fmt.Sprintf(`max by (namespace, pod, workload) (label_replace(%s, "%s", "$1", "owner_name", "(.*)") `+
			`* on (namespace, %s) group_left (workload) max by (namespace, %s, workload) (label_replace(%s, "workload", "$1", "owner_name", "(.*)")))`,
			ownedBy(kind), label, label, label, upper)
	}

	replicaSets := through("ReplicaSet", replicaSetOwnerMetric, "replicaset")
	jobs := through("Job", jobOwnerMetric, "job_name")
	switch req.Kind {
	case "Deployment":
		return replicaSets
	case "CronJob":
		return jobs
	case "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "ReplicationController":
		return direct
	case "DeploymentConfig":
		return through("ReplicationController", replicationControllerOwnerMetric, "replicationcontroller")
	}

	// A custom kind may own pods directly or through either.
	return fmt.Sprintf("(%s or %s or %s)", direct, replicaSets, jobs)
}

// onNodes selects the series of nodes in three ways and adds the label node: the instance is the name of the node, there is a label node,
// or the instance is the address that kube-state-metrics exports for the node. Addresses of several nodes are left out, as the server would
// reject the whole query for them.
func (x expressions) onNodes(expr func(...Matcher) string, names []string) string {
	const port = "(?::[0-9]+)?"
	instance := "(" + anyOf(names) + ")" + port
	byInstance := fmt.Sprintf(`label_replace(%s, "node", "$1", "instance", %s)`,
		expr(Matcher{Label: "instance", Op: "=~", Value: instance}), strconv.Quote(instance))
	byLabel := expr(OneOf("node", names))
	nodeInfo := x.selector(nodeInfoMetric, OneOf("node", names))
	unique := fmt.Sprintf("(count by (internal_ip) (count by (internal_ip, node) (%s)) == 1)", x.selector(nodeInfoMetric))
	byAddress := fmt.Sprintf(`label_replace(%s, "internal_ip", "$1", "instance", "(.+?)%s") * on (internal_ip) group_left (node) (max by (internal_ip, node) (%s) and on (internal_ip) %s)`,
		expr(), port, nodeInfo, unique)

	return fmt.Sprintf("(%s) or (%s) or (%s)", byInstance, byLabel, byAddress)
}

// maxNamePrefix is the length up to which the name of a workload is certain to begin the names of its pods: Kubernetes cuts generated names
// to 63 characters, some of which it adds itself.
const maxNamePrefix = 40

// podPrefixMatchers restricts pods to names that begin like the workload's. It reduces the work of the server without changing the result,
// and returns nil for kinds that may name their pods differently.
func podPrefixMatchers(kind string, names []string) []Matcher {
	if _, builtIn := podNamePattern(kind, names); !builtIn {
		return nil
	}

	prefixes := make([]string, len(names))
	for i, n := range names {
		prefixes[i] = n[:min(len(n), maxNamePrefix)]
	}

	return []Matcher{{Label: "pod", Op: "=~", Value: "(" + anyOf(prefixes) + ").*"}}
}

// podNamePattern returns a regular expression for the names of the pods of built-in kinds. Its first group is the workload.
func podNamePattern(kind string, names []string) (string, bool) {
	suffixes := map[string]string{
		"Deployment":            "-[a-z0-9]{1,10}-[a-z0-9]{5}",
		"ReplicaSet":            "-[a-z0-9]{5}",
		"ReplicationController": "-[a-z0-9]{5}",
		"DaemonSet":             "-[a-z0-9]{5}",
		"Job":                   "-(?:[0-9]+-)?[a-z0-9]{5}",
		"CronJob":               "-[0-9]{8,10}-(?:[0-9]+-)?[a-z0-9]{5}",
		"StatefulSet":           "-[0-9]+",
	}

	suffix, ok := suffixes[kind]
	if !ok {
		return "", false
	}

	return "(" + anyOf(names) + ")" + suffix, true
}

// PodMatchers returns matchers that select the pods of a workload by name, for expressions that cannot use owners. They also select pods of
// other workloads with a similar name. For kinds that are not built in, they select all pods whose name begins with the workload's.
func PodMatchers(namespace, kind, name string) []Matcher {
	pattern, builtIn := podNamePattern(kind, []string{name})
	if !builtIn {
		pattern = regexp.QuoteMeta(name) + "-.*"
	}

	return []Matcher{{Label: "namespace", Op: "=", Value: namespace}, {Label: "pod", Op: "=~", Value: pattern}}
}

// anyOf returns a regular expression that matches each of some literal values.
func anyOf(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}

	return strings.Join(quoted, "|")
}
