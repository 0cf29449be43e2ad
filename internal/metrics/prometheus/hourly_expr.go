// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"time"
)

// Metrics of cAdvisor and kube-state-metrics beside those of use.
const (
	periodsMetric   = "container_cpu_cfs_periods_total"
	throttledMetric = "container_cpu_cfs_throttled_periods_total"

	phaseMetric      = "kube_pod_status_phase"
	endpointMetric   = "kube_endpoint_info"
	addressMetric    = "kube_endpoint_address"
	addressesMetric  = "kube_endpoint_address_available" // before kube-state-metrics 2.6
	addressesUnready = "kube_endpoint_address_not_ready" // likewise
	claimMetric      = "kube_persistentvolumeclaim_info"
	claimMountMetric = "kube_pod_spec_volumes_persistentvolumeclaims_info"
	byPod            = "namespace, pod"
	byContainer      = "namespace, pod, container"
	byInterface      = "namespace, pod, interface"
	byDevice         = "namespace, pod, container, exported_namespace, exported_pod, exported_container, UUID, gpu"
)

func (s *Source) podCPU(own []Matcher) string {
	return fmt.Sprintf("sum by (%s) (%s)", byPod, s.usageExpr(cpuMetric, gridPlan{step: time.Hour, window: time.Hour}, own...))
}

// traffic counts an interface once, whoever scrapes it, and whatever container it is said to be of.
func (s *Source) traffic(metric string) func([]Matcher) string {
	return func(own []Matcher) string {
		sel := selector(metric, s.matchers(append([]Matcher{{Label: "pod", Op: "!=", Value: ""}, {Label: "interface", Op: "!=", Value: "lo"}}, own...)...)...)
		return fmt.Sprintf("sum by (%s) (max by (%s) (rate(%s[%s])))", byPod, byInterface, sel, hour())
	}
}

// throttled is 0 for an hour in which a container had a limit and no work; nothing where one of the counters is missing.
func (s *Source) throttled(own []Matcher) string {
	grown := func(metric string) string {
		return fmt.Sprintf("max by (%s) (increase(%s[%s]))", byContainer, s.containers(metric, own...), hour())
	}
	held, all := grown(throttledMetric), grown(periodsMetric)
	return fmt.Sprintf("clamp_max(%s / (%s > 0), 1) or (0 * %s and %s)", held, all, all, held)
}

func (s *Source) gpu(metric, unit string) func([]Matcher) string {
	return func([]Matcher) string {
		return fmt.Sprintf("max by (%s) (max_over_time(%s[%s])) %s", byDevice, selector(metric, s.matchers()...), hour(), unit)
	}
}

// ended are the pods that had run to their end for the whole of an hour.
func (s *Source) ended(own []Matcher) string {
	sel := selector(phaseMetric, s.matchers(append([]Matcher{{Label: "phase", Op: "=~", Value: "Succeeded|Failed"}}, own...)...)...)
	return fmt.Sprintf("(max by (%s) (min_over_time(%s[%s])) == 1)", byPod, sel, hour())
}

// orNone adds a 0 for everything that the source saw in an hour and that a count leaves out because there is nothing to
// count. present is a metric without which nothing could have been counted: where it is missing, nothing is known.
func (s *Source) orNone(count, by, info, present string, own []Matcher) string {
	return fmt.Sprintf("(%s) or (0 * max by (%s) (max_over_time(%s[%s])) and on () (%s))",
		count, by, selector(info, s.matchers(own...)...), hour(), present)
}

// there is a query that has an answer where a metric is there at all, in whatever namespace.
func (s *Source) there(metric string) string {
	return "count(" + selector(metric, s.matchers()...) + ")"
}

func (s *Source) nodePods(own []Matcher) string {
	pods := selector(podInfoMetric, s.matchers(append([]Matcher{
		{Label: "node", Op: "!=", Value: ""}, {Label: "created_by_kind", Op: "!~", Value: "DaemonSet|Node"},
	}, own...)...)...)
	count := fmt.Sprintf("count by (node) (max by (%s, node) (max_over_time(%s[%s])) unless on (%s) %s)", byPod, pods, hour(), byPod, s.ended(own))
	return s.orNone(count, "node", nodeInfoMetric, s.there(podInfoMetric), own)
}

// nodeRequests leaves out pods that have ended: kube-state-metrics goes on to say what they had asked for. Init containers
// are not in it.
func (s *Source) nodeRequests(resource string) func([]Matcher) string {
	return func(own []Matcher) string {
		sel := selector(requestsMetric, s.matchers(append([]Matcher{{Label: "node", Op: "!=", Value: ""}, {Label: "resource", Op: "=", Value: resource}}, own...)...)...)
		sum := fmt.Sprintf("sum by (node) (max by (%s, node) (%s) unless on (%s) %s)", byContainer, sel, byPod, s.ended(own))
		return s.orNone(sum, "node", nodeInfoMetric, s.there(requestsMetric), own)
	}
}

func (s *Source) serviceAddresses(own []Matcher) string {
	const by = "namespace, endpoint"
	over := func(metric string) string {
		return fmt.Sprintf("max_over_time(%s[%s])", selector(metric, s.matchers(own...)...), hour())
	}
	count := fmt.Sprintf("count by (%s) (max by (%s, ip) (%s)) or (max by (%s) (%s) + max by (%s) (%s))",
		by, by, over(addressMetric), by, over(addressesMetric), by, over(addressesUnready))
	return s.orNone(count, by, endpointMetric, s.there(addressMetric)+" or "+s.there(addressesMetric), own)
}

func (s *Source) claimMounts(own []Matcher) string {
	const by = "namespace, persistentvolumeclaim"
	mounts := selector(claimMountMetric, s.matchers(own...)...)
	count := fmt.Sprintf("count by (%s) (max by (%s, pod) (max_over_time(%s[%s])) unless on (%s) %s)", by, by, mounts, hour(), byPod, s.ended(own))
	return s.orNone(count, by, claimMetric, s.there(claimMountMetric), own)
}
