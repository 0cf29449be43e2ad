// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
)

const (
	// lastingAfter is the time after which two pods of one name are not the old and the new pod of a workload, whose series overlap for
	// some minutes.
	lastingAfter = 15 * time.Minute
	// maxExamples bounds the objects of a namespace whose series are compared, maxSeparating the labels.
	maxExamples, maxSeparating = 5, 40
	// maxCompared bounds the namespaces whose series are compared, each with up to four queries.
	maxCompared = 100
)

// SeveralClustersError means that the selected series describe several objects of one name, as those of several clusters do.
type SeveralClustersError struct {
	// Object is an example.
	Object string
	// Label separates the objects; empty where no label does. Values are some of its values.
	Label  string
	Values []string
}

// Error names the label and the flags.
func (e *SeveralClustersError) Error() string {
	if e.Label == "" {
		return fmt.Sprintf("the server holds several clusters: there are several objects named %s, and no label separates them; "+
			"add an external label such as cluster to each Prometheus, and select one", e.Object)
	}

	values := make([]string, len(e.Values))
	for i, v := range e.Values {
		values[i] = fmt.Sprintf("%q", v)
	}

	return fmt.Sprintf("the server holds several clusters: label %s has the values %s for different objects named %s; "+
		"select the series of one cluster, for example with --prometheus-labels %s (crane) or --extension-labels %s (craned)",
		e.Label, strings.Join(values, ", "), e.Object, e.example(), e.example())
}

// example returns a condition that selects one cluster.
func (e *SeveralClustersError) example() string {
	for _, v := range e.Values {
		switch {
		case plainValue.MatchString(v):
			return e.Label + "=" + v
		case v != "":
			return fmt.Sprintf("'%s=%q'", e.Label, v)
		}
	}

	return e.Label + "=NAME"
}

// plainValue matches values that need no quotes in a flag.
var plainValue = regexp.MustCompile(`^[a-zA-Z0-9_.:/-]+$`)

// PublicMessage implements metrics.PublicError without the names of clusters and objects of others.
func (e *SeveralClustersError) PublicMessage() string {
	return "the data source holds several clusters, which must be separated in the configuration of Crane"
}

// Marks of the suspects.
const (
	markLabel      = "suspect"
	markContainer  = "container"
	markReplicaSet = "replicaset"
	markNamespace  = "namespace"
)

// clusterLabels are usual names of the label of a cluster.
func clusterLabels() []string {
	return []string{
		"cluster", "cluster_name", "clusterName", "cluster_id", "clusterID", "k8s_cluster", "k8s_cluster_name", "kubernetes_cluster", "kube_cluster",
	}
}

// checkAt searches, with one query, for objects that have several series, and compares these for each namespace.
func (c *clusterCheck) checkAt(ctx context.Context, at time.Time, result *mixedClusters) error {
	suspects, err := c.Instant(ctx, c.expr.suspects(), at)
	if err != nil {
		return err
	}

	byNamespace := groupBy(suspects, "namespace")
	for _, namespace := range systemFirst(byNamespace) {
		if result.refusesAll() || result.byNamespace[namespace] != nil {
			continue
		}

		err := c.compare(ctx, byNamespace[namespace], at)
		var several *SeveralClustersError
		switch {
		case errors.As(err, &several):
			result.add(namespace, several)
		case err != nil && !isRefused(err): // One namespace with too many series does not hide the others.
			return err
		}
	}

	return nil
}

// systemFirst returns the namespaces to compare: those of the system, then others in the order of their names, as many as make the server mixed.
func systemFirst(byNamespace map[string][]metrics.Sample) []string {
	names := slices.Sorted(maps.Keys(byNamespace))
	system := slices.DeleteFunc(systemNamespaces(), func(name string) bool { return byNamespace[name] == nil })
	others := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(system, name) })

	return slices.Concat(system, others[:min(len(others), maxCompared)])
}

// compare compares the series of the suspects of one namespace.
func (c *clusterCheck) compare(ctx context.Context, suspects []metrics.Sample, at time.Time) error {
	byMark := groupBy(suspects, markLabel)
	for _, kind := range []struct {
		mark string
		with func(context.Context, []metrics.Sample, time.Time) error
	}{{markContainer, c.compareContainers}, {markReplicaSet, c.compareReplicaSets}, {markNamespace, c.compareNamespaces}} {
		found := byMark[kind.mark]
		if len(found) == 0 {
			continue
		}

		if err := kind.with(ctx, found, at); err != nil {
			return err
		}
	}

	return nil
}

// suspects returns a query for some of the containers and ReplicaSets of each namespace that lastingly have several series, and for the namespaces with
// several values of a label of clusters.
func (x expressions) suspects() string {
	lasting := func(count func(offset string) string) string {
		return fmt.Sprintf("topk by (namespace) (%d, %s and %s)", maxExamples, count(""), count(" offset "+promDuration(lastingAfter)))
	}
	mark := func(query, name string) string {
		return fmt.Sprintf(`label_replace(%s, %q, %q, "", "")`, query, markLabel, name)
	}

	containers := lasting(func(offset string) string {
		return fmt.Sprintf("(count by (%s) (sum without (cpu) (%s%s)) > 1)", byContainer, x.containers(cpuMetric), offset)
	})
	replicaSets := lasting(func(offset string) string {
		return fmt.Sprintf("(count by (namespace, replicaset) (%s%s) > 1)", x.selector(replicaSetOwnerMetric), offset)
	})

	parts := []string{mark(containers, markContainer), mark(replicaSets, markReplicaSet)}
	for _, sel := range []string{x.containers(cpuMetric), x.selector(podOwnerMetric)} {
		namespaces := lasting(func(offset string) string {
			return fmt.Sprintf("(count by (namespace) (group by (namespace, %s) (%s%s)) > 1)", strings.Join(clusterLabels(), ", "), sel, offset)
		})
		parts = append(parts, mark(namespaces, markNamespace))
	}

	return strings.Join(parts, " or ")
}

// oneOfEach returns matchers for the values that some samples have of labels.
func oneOfEach(list []metrics.Sample, names ...string) []Matcher {
	var out []Matcher
	for _, name := range names {
		out = append(out, OneOf(name, valuesOf(list, name)))
	}

	return out
}

// groupBy groups samples by the values of labels.
func groupBy(list []metrics.Sample, names ...string) map[string][]metrics.Sample {
	out := map[string][]metrics.Sample{}
	for _, s := range list {
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = s.Labels[name]
		}

		key := strings.Join(values, "/")
		out[key] = append(out[key], s)
	}

	return out
}

// compareContainers compares the series of containers that have several.
func (c *clusterCheck) compareContainers(ctx context.Context, suspects []metrics.Sample, at time.Time) error {
	names := []string{"namespace", "pod", "container"}
	list, err := c.Instant(ctx, "sum without (cpu) ("+c.expr.containers(cpuMetric, oneOfEach(suspects, names...)...)+")", at)
	if err != nil {
		return err
	}

	byName := groupBy(list, names...)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if err := severalContainers(name, byName[name]); err != nil {
			return err
		}
	}

	return nil
}

// compareReplicaSets compares ReplicaSets that have several series by the names of their pods, which are random: two exporters of one
// cluster list the same pods.
func (c *clusterCheck) compareReplicaSets(ctx context.Context, suspects []metrics.Sample, at time.Time) error {
	sets, err := c.Instant(ctx, c.expr.selector(replicaSetOwnerMetric, oneOfEach(suspects, "namespace", "replicaset")...), at)
	if err != nil {
		return err
	}

	pods, err := c.Instant(ctx, c.expr.selector(podOwnerMetric,
		OneOf("namespace", valuesOf(suspects, "namespace")), OneOf("owner_name", valuesOf(suspects, "replicaset"))), at)
	if err != nil {
		return err
	}

	podsBySet := groupBy(pods, "namespace", "owner_name")
	bySet := groupBy(sets, "namespace", "replicaset")
	for _, name := range slices.Sorted(maps.Keys(bySet)) {
		label, found := separatingPods(bySet[name], podsBySet[name])
		if found {
			return separatedBy(name, label, bySet[name])
		}
	}

	return nil
}

// separatingPods reports whether the series of a ReplicaSet differ in a label that no pod has with two values, while several values have
// pods. The label is empty if it can select no cluster.
func separatingPods(sets, pods []metrics.Sample) (label string, found bool) {
	for _, name := range labelNames(sets) {
		values := valuesOf(sets, name)
		if len(values) < 2 || len(valuesOf(pods, name)) < 2 || !disjoint(pods, name) {
			continue
		}

		found = true
		if !isOwnLabel(name) && (label == "" || isClusterLabel(name) && !isClusterLabel(label)) {
			label = name
		}
	}

	return label, found
}

// disjoint reports whether each pod has one value of a label.
func disjoint(pods []metrics.Sample, label string) bool {
	for _, list := range groupBy(pods, "namespace", "pod") {
		if len(valuesOf(list, label)) > 1 {
			return false
		}
	}

	return true
}

// compareNamespaces examines namespaces with several values of a label of clusters. Series without the label may be of the same cluster,
// scraped by another job.
func (c *clusterCheck) compareNamespaces(ctx context.Context, suspects []metrics.Sample, at time.Time) error {
	groupLabels := strings.Join(clusterLabels(), ", ")
	for _, sel := range []func(...Matcher) string{
		func(m ...Matcher) string { return c.expr.containers(cpuMetric, m...) },
		func(m ...Matcher) string { return c.expr.selector(podOwnerMetric, m...) },
	} {
		list, err := c.Instant(ctx, fmt.Sprintf("group by (namespace, pod, %s) (%s)", groupLabels, sel(oneOfEach(suspects, "namespace")...)), at)
		if err != nil {
			return err
		}

		byNamespace := groupBy(list, "namespace")
		for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
			pods := byNamespace[namespace]
			for _, label := range clusterLabels() {
				values := valuesOf(pods, label)
				if hasSeveral(values) || len(values) > 1 && disjoint(pods, label) {
					return separatedBy("namespace "+namespace, label, pods)
				}
			}
		}
	}

	return nil
}

// podInCgroup finds the UID of a pod in the path of a cgroup, with either cgroup driver.
var podInCgroup = regexp.MustCompile(`pod([0-9a-fA-F][0-9a-fA-F_-]{7,})`)

// severalContainers returns an error if the series of containers of one name are of different pods: the cgroups have different UIDs of
// pods or, where they are unknown, a label is named like a cluster's, or the counters are of different processes.
func severalContainers(object string, list []metrics.Sample) error {
	// Duplicates of one pod are scraped by several jobs or kept by several replicas of Prometheus.
	pods := map[string][]metrics.Sample{}
	for _, s := range list {
		id := s.Labels["id"]
		if m := podInCgroup.FindStringSubmatch(id); m != nil {
			id = strings.ReplaceAll(m[1], "_", "-")
		}
		pods[id] = append(pods[id], s)
	}

	ids := slices.Sorted(maps.Keys(pods))
	if len(pods) > 1 && ids[0] != "" {
		return separatedBy(object, separatingLabel(list, func(a, b metrics.Sample) bool {
			return a.Labels["id"] != b.Labels["id"]
		}), list)
	}

	if len(pods) == 1 && ids[0] != "" {
		return nil
	}

	if label := clusterNamed(list); label != "" {
		return separatedBy(object, label, list)
	}

	if differentCounters(list) {
		return separatedBy(object, separatingLabel(list, func(a, b metrics.Sample) bool { return different(a.Value, b.Value) }), list)
	}

	return nil
}

// differentCounters reports whether two samples are of different counters.
func differentCounters(list []metrics.Sample) bool {
	for _, a := range list[1:] {
		if different(a.Value, list[0].Value) {
			return true
		}
	}

	return false
}

// different reports whether two values of a counter of CPU seconds that were scraped within minutes are of different containers.
func different(a, b float64) bool {
	const scrapes, share = 120.0, 0.2
	return math.Abs(a-b) > scrapes && math.Abs(a-b) > share*math.Max(a, b)
}

// clusterNamed returns a label with the name of a cluster's of which the series have several values; empty without one.
func clusterNamed(list []metrics.Sample) string {
	for _, label := range labelNames(list) {
		if isClusterLabel(label) && hasSeveral(valuesOf(list, label)) {
			return label
		}
	}

	return ""
}

// hasSeveral reports whether sorted values have several beside the empty one: a job may not add the label that another adds.
func hasSeveral(values []string) bool {
	return len(values) > 2 || len(values) == 2 && values[0] != ""
}

// isClusterLabel reports whether a label is named like a cluster's: cluster, k8s_cluster, clusterName, cluster_id and so on.
func isClusterLabel(name string) bool {
	return strings.Contains(strings.ToLower(name), "cluster")
}

// valuesOf returns the distinct values of a label, sorted. A missing label has the empty value.
func valuesOf(list []metrics.Sample, label string) []string {
	values := make([]string, 0, len(list))
	for _, s := range list {
		values = append(values, s.Labels[label])
	}

	return sortedSet(values)
}

// separatingLabel returns the label that differs between all different series and has the fewest values; empty for none. Labels that each
// pod or node has of its own separate no cluster.
func separatingLabel(list []metrics.Sample, different func(a, b metrics.Sample) bool) string {
	best := ""
	for _, name := range labelNames(list) {
		if isOwnLabel(name) || !separates(list, name, different) {
			continue
		}

		if best == "" || isClusterLabel(name) && !isClusterLabel(best) ||
			isClusterLabel(name) == isClusterLabel(best) && len(valuesOf(list, name)) < len(valuesOf(list, best)) {
			best = name
		}
	}

	return best
}

// labelNames returns the names of the labels of some series, sorted, as many as are compared.
func labelNames(list []metrics.Sample) []string {
	names := map[string]bool{}
	for _, s := range list {
		for name := range s.Labels {
			names[name] = true
		}
	}

	out := slices.Sorted(maps.Keys(names))
	return out[:min(len(out), maxSeparating)]
}

// separates reports whether a label differs between each two different series.
func separates(list []metrics.Sample, label string, different func(a, b metrics.Sample) bool) bool {
	found := false
	for i, a := range list {
		for _, b := range list[i+1:] {
			if !different(a, b) {
				continue
			}

			if a.Labels[label] == b.Labels[label] {
				return false
			}
			found = true
		}
	}

	return found
}

// isOwnLabel reports whether each pod, node or exporter has a value of its own, so that the label cannot select a cluster.
func isOwnLabel(name string) bool {
	return slices.Contains([]string{
		"__name__", "namespace", "pod", "container", "id", "uid", "name", "image", "cpu", "node", "instance", "nodename", "kubernetes_io_hostname",
		"host_ip", "pod_ip", "created_by_kind", "created_by_name", "replicaset", "owner_kind", "owner_name", "owner_is_controller",
	}, name)
}

func separatedBy(object, label string, list []metrics.Sample) error {
	const maxValues = 5
	values := valuesOf(list, label)
	return &SeveralClustersError{Object: object, Label: label, Values: values[:min(len(values), maxValues)]}
}
