// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
)

// Targets returns the scrape targets of a cluster with these nodes.
func Targets(nodes []string) []promserver.Target {
	targets := []promserver.Target{{Job: JobState, Instance: stateInstance, Metadata: metadata("kube_")}}
	for _, n := range nodes {
		targets = append(targets,
			promserver.Target{Job: JobKubelet, Instance: n, Metadata: metadata("container_", "machine_")},
			promserver.Target{Job: JobNode, Instance: n + nodePort, Metadata: metadata("node_")})
	}

	return targets
}

// metadata returns the metadata of families whose names start with one of the prefixes.
func metadata(prefixes ...string) []promserver.Metadata {
	var list []promserver.Metadata
	for _, m := range families() {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m.Name, p) }) {
			list = append(list, m)
		}
	}

	return list
}

// families returns the metadata of metrics whose meaning does not follow from their name.
func families() []promserver.Metadata {
	const (
		counter = "counter"
		gauge   = "gauge"
	)

	return []promserver.Metadata{
		{Name: "container_cpu_usage_seconds_total", Type: counter, Help: "CPU time used."},
		{Name: "container_cpu_cfs_periods_total", Type: counter, Help: "Accounting periods in which the limit was in force."},
		{Name: "container_cpu_cfs_throttled_periods_total", Type: counter, Help: "Accounting periods in which the container was throttled."},
		{Name: "container_cpu_cfs_throttled_seconds_total", Type: counter, Help: "Time for which the container was throttled."},
		{Name: "container_memory_working_set_bytes", Type: gauge, Help: "Memory that cannot be reclaimed under pressure."},
		{Name: "container_memory_rss", Type: gauge, Help: "Anonymous memory."},
		{Name: "container_memory_cache", Type: gauge, Help: "Page cache."},
		{Name: "container_memory_total_active_file_bytes", Type: gauge, Help: "Page cache that was read more than once."},
		{Name: "container_memory_usage_bytes", Type: gauge, Help: "Memory of all kinds, page cache included."},
		{Name: "container_oom_events_total", Type: counter, Help: "OOM kills at the memory limit."},
		{Name: "container_network_receive_bytes_total", Type: counter, Help: "Bytes received by the pod."},
		{Name: "container_network_transmit_bytes_total", Type: counter, Help: "Bytes sent by the pod."},
		{Name: "machine_cpu_cores", Type: gauge, Help: "Cores of the node."},
		{Name: "machine_memory_bytes", Type: gauge, Help: "Memory of the node."},
		{Name: "kube_pod_owner", Type: gauge, Help: "Owner of a pod."},
		{Name: "kube_replicaset_owner", Type: gauge, Help: "Owner of a ReplicaSet."},
		{Name: "kube_pod_container_resource_requests", Type: gauge, Help: "Resources that a container requests."},
		{Name: "kube_pod_container_resource_limits", Type: gauge, Help: "Resource limits of a container."},
		{Name: "kube_pod_container_status_restarts_total", Type: counter, Help: "Restarts of a container."},
		{Name: "kube_node_status_allocatable", Type: gauge, Help: "Resources of a node that are available to pods."},
		{Name: "node_cpu_seconds_total", Type: counter, Help: "Time of each CPU by mode."},
		{Name: "node_memory_MemTotal_bytes", Type: gauge, Help: "Memory of the node."},
		{Name: "node_memory_MemAvailable_bytes", Type: gauge, Help: "Memory that is available without swapping."},
		{Name: "node_load1", Type: gauge, Help: "Load over one minute."},
	}
}

// Job names of the exporters and parameters of their series.
const (
	JobKubelet      = "kubelet"
	JobState        = "kube-state-metrics"
	JobNode         = "node-exporter"
	stateInstance   = "kube-state-metrics:8080"
	nodePort        = ":9100"
	cadvisorPath    = "/metrics/cadvisor"
	scrapeDuration  = 0.02
	fractionOfBusy  = 0.8 // of a node's busy time that is spent in user mode
	networkSentPart = 0.7 // bytes sent for each one received
)

// sink receives one sample: the metric's name, its value, and labels as alternating names and values.
type sink func(name string, value float64, pairs ...string)

// with returns a sink that adds labels to all samples.
func (s sink) with(more ...string) sink {
	return func(name string, value float64, pairs ...string) {
		s(name, value, append(append(make([]string, 0, len(pairs)+len(more)), pairs...), more...)...)
	}
}

// labelSet returns sorted labels without empty ones, as in a scrape.
func labelSet(name string, pairs []string) labels.Labels {
	set := make([]labels.Label, 0, len(pairs)/2+1)
	set = append(set, labels.Label{Name: labels.MetricName, Value: name})
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			set = append(set, labels.Label{Name: pairs[i], Value: pairs[i+1]})
		}
	}

	return labels.New(set...)
}

// collect returns a sink that appends to samples.
func collect(samples *[]promserver.Sample) sink {
	return func(name string, value float64, pairs ...string) {
		*samples = append(*samples, promserver.Sample{Labels: labelSet(name, pairs), Value: value})
	}
}

// objectLabels returns an object's labels as kube-state-metrics exposes them: prefixed by label_, with characters that
// are invalid in label names replaced by underscores.
func objectLabels(values map[string]string, invalid *regexp.Regexp) []string {
	pairs := make([]string, 0, 2*len(values))
	for name, value := range values {
		pairs = append(pairs, "label_"+invalid.ReplaceAllString(name, "_"), value)
	}

	return pairs
}

// invalidInLabel matches characters that are invalid in label names.
func invalidInLabel() *regexp.Regexp { return regexp.MustCompile(`[^a-zA-Z0-9_]`) }

func boolValue(b bool) float64 {
	if b {
		return 1
	}

	return 0
}
