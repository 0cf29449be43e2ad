// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"time"
)

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
func (x expressions) podCPU(own []Matcher) string {
	return fmt.Sprintf("sum by (%s) (%s)", byPod, x.usage(cpuMetric, gridPlan{step: time.Hour, window: time.Hour}, own...))
}

// traffic returns the traffic of pods. Each interface counts once, whatever job scrapes it and whatever container it is attributed to.
func (x expressions) traffic(metric string, own []Matcher) string {
	sel := x.selector(metric, append([]Matcher{{Label: "pod", Op: "!=", Value: ""}, {Label: "interface", Op: "!=", Value: "lo"}}, own...)...)
	return fmt.Sprintf("sum by (%s) (max by (%s) (rate(%s[%s])))", byPod, byInterface, sel, oneHour())
}

// throttled returns the ratio of throttled periods. It is 0 for an hour in which a container had a limit and no work, and missing where one
// of the counters is missing.
func (x expressions) throttled(own []Matcher) string {
	increase := func(metric string) string {
		return fmt.Sprintf("max by (%s) (increase(%s[%s]))", byContainer, x.containers(metric, own...), oneHour())
	}
	throttled, all := increase(throttledMetric), increase(periodsMetric)
	return fmt.Sprintf("clamp_max(%s / (%s > 0), 1) or (0 * %s and %s)", throttled, all, all, throttled)
}

// gpu returns the largest value of a metric of the DCGM exporter, converted by an arithmetic suffix.
func (x expressions) gpu(metric, conversion string) string {
	return fmt.Sprintf("max by (%s) (max_over_time(%s[%s])) %s", byDevice, x.selector(metric), oneHour(), conversion)
}

// ended returns the pods that had ended before the hour began.
func (x expressions) ended(own []Matcher) string {
	sel := x.selector(phaseMetric, append([]Matcher{{Label: "phase", Op: "=~", Value: "Succeeded|Failed"}}, own...)...)
	return fmt.Sprintf("(max by (%s) (min_over_time(%s[%s])) == 1)", byPod, sel, oneHour())
}

// orZero adds a 0 for each object that the source saw within the hour and that a count leaves out because there is nothing to count.
// present is a query for a metric without which nothing can be counted: where it is missing, there is no 0 either.
func (x expressions) orZero(count, by, info, present string, own []Matcher) string {
	return fmt.Sprintf("(%s) or (0 * max by (%s) (max_over_time(%s[%s])) and on () (%s))",
		count, by, x.selector(info, own...), oneHour(), present)
}

// exists returns a query with a result where a metric has any series, in any namespace.
func (x expressions) exists(metric string) string { return "count(" + x.selector(metric) + ")" }

// nodePods returns the number of pods of nodes.
func (x expressions) nodePods(own []Matcher) string {
	pods := x.selector(podInfoMetric, append([]Matcher{
		{Label: "node", Op: "!=", Value: ""}, {Label: "created_by_kind", Op: "!~", Value: "DaemonSet|Node"},
	}, own...)...)
	count := fmt.Sprintf("count by (node) (max by (%s, node) (max_over_time(%s[%s])) unless on (%s) %s)", byPod, pods, oneHour(), byPod, x.ended(own))
	return x.orZero(count, "node", nodeInfoMetric, x.exists(podInfoMetric), own)
}

// nodeRequests returns the requests of the pods of nodes. It leaves out pods that have ended, as kube-state-metrics still exports their
// requests, and init containers.
func (x expressions) nodeRequests(resource string, own []Matcher) string {
	sel := x.selector(requestsMetric, append([]Matcher{{Label: "node", Op: "!=", Value: ""}, {Label: "resource", Op: "=", Value: resource}}, own...)...)
	sum := fmt.Sprintf("sum by (node) (max by (%s, node) (%s) unless on (%s) %s)", byContainer, sel, byPod, x.ended(own))
	return x.orZero(sum, "node", nodeInfoMetric, x.exists(requestsMetric), own)
}

// serviceAddresses returns the number of addresses of Services.
func (x expressions) serviceAddresses(own []Matcher) string {
	const by = "namespace, endpoint"
	over := func(metric string) string {
		return fmt.Sprintf("max_over_time(%s[%s])", x.selector(metric, own...), oneHour())
	}
	count := fmt.Sprintf("count by (%s) (max by (%s, ip) (%s)) or (max by (%s) (%s) + max by (%s) (%s))",
		by, by, over(addressMetric), by, over(addressesMetric), by, over(addressesUnready))
	return x.orZero(count, by, endpointMetric, x.exists(addressMetric)+" or "+x.exists(addressesMetric), own)
}

// claimMounts returns the number of pods that mount persistent volume claims.
func (x expressions) claimMounts(own []Matcher) string {
	const by = "namespace, persistentvolumeclaim"
	mounts := x.selector(claimMountMetric, own...)
	count := fmt.Sprintf("count by (%s) (max by (%s, pod) (max_over_time(%s[%s])) unless on (%s) %s)", by, by, mounts, oneHour(), byPod, x.ended(own))
	return x.orZero(count, by, claimMetric, x.exists(claimMountMetric), own)
}
