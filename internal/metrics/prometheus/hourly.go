// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
)

// hourlyReader implements metrics.HourlyReader.
type hourlyReader struct {
	*queries

	owners *ownerReader
}

// Hourly implements metrics.HourlyReader.
func (h *hourlyReader) Hourly(ctx context.Context, req metrics.HourlyRequest) ([]metrics.HourlySeries, error) {
	q, ok := h.query(req.Metric)
	if !ok || req.Hours < 1 {
		return nil, fmt.Errorf("metric %q over %d hours: unknown metric, or fewer than 1 hour", req.Metric, req.Hours)
	}

	end := req.End
	if now := h.now(); now.Before(end) {
		end = now
	}

	end = end.UTC().Truncate(time.Second)
	// The value at t covers (t-1h, t].
	w := metrics.Window{Start: end.Add(-time.Duration(req.Hours-1) * time.Hour), End: end.Add(time.Second), Step: time.Hour}

	in := newScope(req.Namespaces)
	if !q.namespaced {
		in = scope{all: true}
	}

	in, err := h.owners.clusters.narrow(ctx, in)
	if err != nil {
		return nil, err
	}

	// Metrics of nodes have no namespace, or that of their exporter.
	if !q.namespaced {
		in.without = nil
	}

	var found []metrics.LabeledSeries
	err = h.eachBatch(ctx, in, func(matchers []Matcher) error {
		list, err := h.Range(ctx, q.expr(matchers), w)
		found = append(found, list...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s over %d hours: %w", req.Metric, req.Hours, err)
	}

	out, namespaces := q.toSeries(found)
	if !q.pods || len(out) == 0 {
		return out, nil
	}

	owners, err := h.podOwners(ctx, metrics.Window{Start: w.Start.Add(-time.Hour), End: end}, in, namespaces)
	if err != nil {
		return nil, err
	}

	for i := range out {
		key := &out[i].Key
		key.Workload, key.Node = owners.resolve(key.Workload.Namespace, key.Pod)
	}

	return out, nil
}

// podOwners returns the owners of pods in the namespaces of the result. With a cache it reads the owners in all requested namespaces, as
// the next metric may have series in other ones.
func (h *hourlyReader) podOwners(ctx context.Context, w metrics.Window, requested scope, found []string) (*owners, error) {
	in := scope{names: found}
	if o := h.owners.cache.find(w.Start, w.End, in); o != nil {
		return o, nil
	}

	if h.owners.cache != nil && !requested.all {
		in = requested
	}

	return h.owners.read(ctx, w.Start, w.End, in)
}

// hourlyQuery is the query of an hourly metric and the meaning of its labels.
type hourlyQuery struct {
	// expr returns the query, with more matchers where namespaced.
	expr       func(matchers []Matcher) string
	namespaced bool
	// key reads labels; pods is set where it leaves the owner of a pod to be resolved.
	key  func(metrics.Labels) metrics.HourlySeries
	pods bool
}

// toSeries converts the series of a result and returns their namespaces, sorted.
func (q hourlyQuery) toSeries(found []metrics.LabeledSeries) (out []metrics.HourlySeries, namespaces []string) {
	out = make([]metrics.HourlySeries, 0, len(found))
	for _, l := range found {
		hourly := q.key(l.Labels)
		if hourly.Key.Workload.Namespace == "" && hourly.Key.Node == "" || q.pods && hourly.Key.Pod == "" {
			continue
		}

		hourly.Values = l.Values
		out = append(out, hourly)
		namespaces = append(namespaces, hourly.Key.Workload.Namespace)
	}

	slices.Sort(namespaces)
	return out, slices.Compact(namespaces)
}

// query returns the query of a metric.
func (h *hourlyReader) query(hourlyMetric metrics.HourlyMetric) (hourlyQuery, bool) {
	x := h.expr
	traffic := func(metric string) func([]Matcher) string {
		return func(matchers []Matcher) string { return x.traffic(metric, matchers) }
	}
	gpu := func(metric, conversion string) func([]Matcher) string {
		return func([]Matcher) string { return x.gpu(metric, conversion) }
	}
	requests := func(resource string) func([]Matcher) string {
		return func(matchers []Matcher) string { return x.nodeRequests(resource, matchers) }
	}

	service := objectKey("Service", "endpoint")
	claim := objectKey("PersistentVolumeClaim", "persistentvolumeclaim")
	q, ok := map[metrics.HourlyMetric]hourlyQuery{
		metrics.PodCPU:             {expr: x.podCPU, key: podKey, namespaced: true, pods: true},
		metrics.PodReceived:        {expr: traffic("container_network_receive_bytes_total"), key: podKey, namespaced: true, pods: true},
		metrics.PodSent:            {expr: traffic("container_network_transmit_bytes_total"), key: podKey, namespaced: true, pods: true},
		metrics.ContainerThrottled: {expr: x.throttled, key: podKey, namespaced: true, pods: true},
		metrics.GPUUse:             {expr: gpu("DCGM_FI_DEV_GPU_UTIL", "/ 100"), key: gpuKey, pods: true},
		metrics.GPUMemory:          {expr: gpu("DCGM_FI_DEV_FB_USED", "* 1048576"), key: gpuKey, pods: true},
		metrics.NodePods:           {expr: x.nodePods, key: nodeKey},
		metrics.NodeCPURequests:    {expr: requests("cpu"), key: nodeKey},
		metrics.NodeMemoryRequests: {expr: requests("memory"), key: nodeKey},
		metrics.ServiceAddresses:   {expr: x.serviceAddresses, key: service, namespaced: true},
		metrics.ClaimMounts:        {expr: x.claimMounts, key: claim, namespaced: true},
	}[hourlyMetric]

	return q, ok
}

func podKey(l metrics.Labels) metrics.HourlySeries {
	return metrics.HourlySeries{Key: metrics.ContainerKey{Workload: newRef(l["namespace"], "Pod", l["pod"]), Pod: l["pod"], Container: l["container"]}}
}

func nodeKey(l metrics.Labels) metrics.HourlySeries {
	return metrics.HourlySeries{Key: metrics.ContainerKey{Node: l["node"]}}
}

// objectKey returns a function that reads an object of a kind whose name is in a label.
func objectKey(kind, label string) func(metrics.Labels) metrics.HourlySeries {
	return func(l metrics.Labels) metrics.HourlySeries {
		return metrics.HourlySeries{Key: metrics.ContainerKey{Workload: newRef(l["namespace"], kind, l[label])}}
	}
}

// gpuKey reads the labels of the DCGM exporter. Where Prometheus overwrites them with those of the exporter's own pod, the labels of the
// pod that uses the GPU start with exported_.
func gpuKey(l metrics.Labels) metrics.HourlySeries {
	exported := ""
	if l["exported_pod"] != "" {
		exported = "exported_"
	}

	out := podKey(metrics.Labels{"namespace": l[exported+"namespace"], "pod": l[exported+"pod"], "container": l[exported+"container"]})
	if out.Device = l["UUID"]; out.Device == "" {
		out.Device = l["gpu"]
	}

	return out
}

// Metrics of cAdvisor and kube-state-metrics that are read by the hour.
const (
	periodsMetric   = "container_cpu_cfs_periods_total"
	throttledMetric = "container_cpu_cfs_throttled_periods_total"

	phaseMetric      = "kube_pod_status_phase"
	endpointMetric   = "kube_endpoint_info"
	addressMetric    = "kube_endpoint_address"
	addressesMetric  = "kube_endpoint_address_available" // before kube-state-metrics 2.6
	addressesUnready = "kube_endpoint_address_not_ready" // before kube-state-metrics 2.6
	claimMetric      = "kube_persistentvolumeclaim_info"
	claimMountMetric = "kube_pod_spec_volumes_persistentvolumeclaims_info"
	byPod            = "namespace, pod"
	byContainer      = "namespace, pod, container"
	byInterface      = "namespace, pod, interface"
	byDevice         = "namespace, pod, container, exported_namespace, exported_pod, exported_container, UUID, gpu"
)

// oneHour returns the range of one step.
func oneHour() string { return openRange(time.Hour) }

// podCPU returns the CPU usage of pods.
func (x expressions) podCPU(matchers []Matcher) string {
	usage := x.usage(cpuMetric, gridPlan{step: time.Hour, window: time.Hour}, matchers...)
	return plausibleSum(byPod, usage, largestNode(x, metrics.CPU))
}

// traffic returns the traffic of pods. Each interface counts once, whatever job scrapes it and whatever container it is attributed to.
func (x expressions) traffic(metric string, matchers []Matcher) string {
	sel := x.selector(metric, append([]Matcher{{Label: "pod", Op: "!=", Value: ""}, {Label: "interface", Op: "!=", Value: "lo"}}, matchers...)...)
	return fmt.Sprintf("sum by (%s) (max by (%s) (rate(%s[%s])))", byPod, byInterface, sel, oneHour())
}

// throttled returns the ratio of throttled periods. It is 0 for an hour in which a container had a limit and no work, and missing where one
// of the counters is missing.
func (x expressions) throttled(matchers []Matcher) string {
	increase := func(metric string) string {
		return fmt.Sprintf("max by (%s) (increase(%s[%s]))", byContainer, x.containers(metric, matchers...), oneHour())
	}
	throttled := increase(throttledMetric)
	all := increase(periodsMetric)

	return fmt.Sprintf("clamp_max(%s / (%s > 0), 1) or (0 * %s and %s)", throttled, all, all, throttled)
}

// gpu returns the largest value of a metric of the DCGM exporter, converted by an arithmetic suffix.
func (x expressions) gpu(metric, conversion string) string {
	return fmt.Sprintf("max by (%s) (max_over_time(%s[%s])) %s", byDevice, x.selector(metric), oneHour(), conversion)
}

// ended returns the pods that had ended before the hour began.
func (x expressions) ended(matchers []Matcher) string {
	sel := x.selector(phaseMetric, append([]Matcher{{Label: "phase", Op: "=~", Value: "Succeeded|Failed"}}, matchers...)...)
	return fmt.Sprintf("(max by (%s) (min_over_time(%s[%s])) == 1)", byPod, sel, oneHour())
}

// orZero adds a 0 for each object that the source saw within the hour and that a count leaves out because there is nothing to count.
// present is a query for a metric without which nothing can be counted: where it is missing, there is no 0 either.
func (x expressions) orZero(count, groupLabels, info, present string, matchers []Matcher) string {
	return fmt.Sprintf("(%s) or (0 * max by (%s) (max_over_time(%s[%s])) and on () (%s))",
		count, groupLabels, x.selector(info, matchers...), oneHour(), present)
}

// exists returns a query with a result where a metric has any series, in any namespace.
func (x expressions) exists(metric string) string { return "count(" + x.selector(metric) + ")" }

// nodePods returns the number of pods of nodes.
func (x expressions) nodePods(matchers []Matcher) string {
	pods := x.selector(podInfoMetric, append([]Matcher{
		{Label: "node", Op: "!=", Value: ""}, {Label: "created_by_kind", Op: "!~", Value: "DaemonSet|Node"},
	}, matchers...)...)
	count := fmt.Sprintf("count by (node) (max by (%s, node) (max_over_time(%s[%s])) unless on (%s) %s)", byPod, pods, oneHour(), byPod, x.ended(matchers))

	return x.orZero(count, "node", nodeInfoMetric, x.exists(podInfoMetric), matchers)
}

// nodeRequests returns the requests of the pods of nodes. It leaves out pods that have ended, as kube-state-metrics still exports their
// requests, and init containers.
func (x expressions) nodeRequests(resource string, matchers []Matcher) string {
	sel := x.selector(requestsMetric, append([]Matcher{
		{Label: "node", Op: "!=", Value: ""}, {Label: renamedPrefix + "node", Op: "=", Value: ""}, {Label: "resource", Op: "=", Value: resource},
	}, matchers...)...)
	sum := fmt.Sprintf("sum by (node) (max by (%s, node) (%s) unless on (%s) %s)", byContainer, sel, byPod, x.ended(matchers))
	return x.orZero(sum, "node", nodeInfoMetric, x.exists(requestsMetric), matchers)
}

// serviceAddresses returns the number of addresses of Services.
func (x expressions) serviceAddresses(matchers []Matcher) string {
	const groupLabels = "namespace, endpoint"
	over := func(metric string) string {
		return fmt.Sprintf("max_over_time(%s[%s])", x.selector(metric, matchers...), oneHour())
	}
	count := fmt.Sprintf("count by (%s) (max by (%s, ip) (%s)) or (max by (%s) (%s) + max by (%s) (%s))",
		groupLabels, groupLabels, over(addressMetric), groupLabels, over(addressesMetric), groupLabels, over(addressesUnready))

	return x.orZero(count, groupLabels, endpointMetric, x.exists(addressMetric)+" or "+x.exists(addressesMetric), matchers)
}

// claimMounts returns the number of pods that mount persistent volume claims.
func (x expressions) claimMounts(matchers []Matcher) string {
	const groupLabels = "namespace, persistentvolumeclaim"
	mounts := x.selector(claimMountMetric, matchers...)
	count := fmt.Sprintf("count by (%s) (max by (%s, pod) (max_over_time(%s[%s])) unless on (%s) %s)", groupLabels, groupLabels, mounts, oneHour(), byPod, x.ended(matchers))

	return x.orZero(count, groupLabels, claimMetric, x.exists(claimMountMetric), matchers)
}
