// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/series"
)

// Names of the metrics that the generator writes.
const (
	cpuTotal     = "container_cpu_usage_seconds_total"
	workingSet   = "container_memory_working_set_bytes"
	activeFile   = "container_memory_total_active_file_bytes"
	rss          = "container_memory_rss"
	restarts     = "kube_pod_container_status_restarts_total"
	lastReason   = "kube_pod_container_status_last_terminated_reason"
	podOwner     = "kube_pod_owner"
	requestsName = "kube_pod_container_resource_requests"
	limitsName   = "kube_pod_container_resource_limits"
)

// Series is one series of the store.
type Series struct {
	// Labels include __name__.
	Labels map[string]string
	// Values has one value per minute from the minute From of the history; a gap is no sample.
	Values []float64
	From   int
}

func (s *Series) name() string { return s.Labels["__name__"] }

// isCadvisor reports whether the kubelet exports the series.
func (s *Series) isCadvisor() bool {
	switch s.name() {
	case cpuTotal, workingSet, activeFile, rss:
		return true
	}

	return false
}

// clone returns a copy with more labels.
func (s *Series) clone(pairs ...string) *Series {
	out := &Series{Labels: maps.Clone(s.Labels), Values: slices.Clone(s.Values), From: s.From}
	for i := 0; i < len(pairs); i += 2 {
		out.Labels[pairs[i]] = pairs[i+1]
	}

	return out
}

// store returns the series in the form of the server.
func store(all []*Series) []promserver.Series {
	out := make([]promserver.Series, 0, len(all))
	for _, s := range all {
		out = append(out, promserver.Series{
			Labels: labels.FromMap(s.Labels),
			Fill:   s.fill,
		})
	}

	return out
}

// fill copies the values from a minute of the history.
func (s *Series) fill(dst []float64, first int) {
	for i := range dst {
		dst[i] = series.Gap()
	}

	from := max(first, s.From)
	to := min(first+len(dst), s.From+len(s.Values))
	if from < to {
		copy(dst[from-first:], s.Values[from-s.From:to-s.From])
	}
}

// record returns what a perfect scrape of a workload records.
func record(w *Workload) []*Series {
	var out []*Series
	owners := map[string]bool{}
	for i, p := range w.Pods {
		out = append(out, recordUsage(w, p, i)...)
		out = append(out, recordState(w, p, i)...)

		if p.Owner != "" && !owners[p.Owner] {
			owners[p.Owner] = true
			out = append(out, recordOwner(w, p))
		}
	}

	return out
}

// recordUsage returns the series of cAdvisor.
func recordUsage(w *Workload, p *Pod, i int) []*Series {
	pod := func(metric string, values []float64, more ...string) *Series {
		s := &Series{Values: values, From: p.From, Labels: map[string]string{
			"__name__":  metric,
			"namespace": w.Namespace,
			"pod":       p.Name,
			"container": "app",
			"id":        "/kubepods/burstable/pod" + w.Namespace + strconv.Itoa(i) + "/c0",
			"instance":  "10.0.0.1:10250",
			"job":       "kubelet",
			"node":      "n1",
		}}

		return s.clone(more...)
	}

	total := 1000 * float64(i+1)
	counter := gaps(len(p.Cores))
	memory := gaps(len(p.Cores))
	file := gaps(len(p.Cores))
	anonymous := gaps(len(p.Cores))
	for m := range p.Cores {
		if series.IsGap(p.Cores[m]) {
			continue
		}

		total += 60 * p.Cores[m]
		counter[m] = total
		memory[m] = p.Bytes[m]
		file[m] = 0
		anonymous[m] = p.Bytes[m]
		if p.Cache != nil {
			memory[m] += p.Cache[m]
			file[m] = p.Cache[m]
		}
	}

	return []*Series{pod(cpuTotal, counter, "cpu", "total"), pod(workingSet, memory), pod(activeFile, file), pod(rss, anonymous)}
}

// recordState returns the series of kube-state-metrics about a pod.
func recordState(w *Workload, p *Pod, i int) []*Series {
	exists := func(value float64) []float64 {
		out := gaps(len(p.Cores))
		for m := range p.Cores {
			if !series.IsGap(p.Cores[m]) {
				out[m] = value
			}
		}

		return out
	}

	var out []*Series
	add := func(value float64, metric string, more ...string) {
		s := &Series{Values: exists(value), From: p.From, Labels: map[string]string{
			"__name__":  metric,
			"namespace": w.Namespace,
			"pod":       p.Name,
			"uid":       w.Namespace + strconv.Itoa(i),
			"instance":  "10.0.0.9:8080",
			"job":       "kube-state-metrics",
		}}
		out = append(out, s.clone(more...))
	}

	kind, owner := controllerOf(w, p)
	add(1, podOwner, "owner_kind", kind, "owner_name", owner, "owner_is_controller", "true")
	add(1, "kube_pod_info", "node", "n1", "created_by_kind", kind, "created_by_name", owner)
	add(1, "kube_pod_container_info", "container", "app")
	add(0, restarts, "container", "app")
	for _, amount := range []struct {
		metric, resource string
		value            float64
	}{{requestsName, "cpu", w.RequestCPU}, {requestsName, "memory", w.Request}, {limitsName, "cpu", w.LimitCPU}, {limitsName, "memory", w.Limit}} {
		if amount.value > 0 {
			add(amount.value, amount.metric, "container", "app", "resource", amount.resource, "node", "n1")
		}
	}

	return out
}

// controllerOf returns the controller of a pod as kube-state-metrics exports it.
func controllerOf(w *Workload, p *Pod) (kind, name string) {
	switch w.Kind {
	case "Deployment":
		return "ReplicaSet", p.Owner
	case "CronJob", "Job":
		return "Job", p.Owner
	case "Pod":
		return "<none>", "<none>"
	}

	return w.Kind, w.Name
}

// recordOwner returns the owner of a ReplicaSet or Job.
func recordOwner(w *Workload, p *Pod) *Series {
	metric, label := "kube_replicaset_owner", "replicaset"
	kind, name := w.Kind, w.Name
	if w.Kind == "CronJob" || w.Kind == "Job" {
		metric, label = "kube_job_owner", "job_name"
	}
	if w.Kind == "Job" {
		kind, name = "<none>", "<none>"
	}

	to := p.From + len(p.Cores)
	if w.Kind == "Deployment" {
		to = minutes // A ReplicaSet stays for rollbacks.
	}

	return &Series{Values: constant(1, to-p.From), From: p.From, Labels: map[string]string{
		"__name__":            metric,
		"namespace":           w.Namespace,
		label:                 p.Owner,
		"owner_kind":          kind,
		"owner_name":          name,
		"owner_is_controller": "true",
		"job":                 "kube-state-metrics",
	}}
}

// recordNode returns the series of the only node.
func recordNode() []*Series {
	var out []*Series
	add := func(value float64, metric string, more ...string) {
		s := &Series{Values: constant(value, minutes), Labels: map[string]string{"__name__": metric, "node": "n1", "job": "kube-state-metrics"}}
		out = append(out, s.clone(more...))
	}

	add(1, "kube_node_info", "internal_ip", "10.0.0.1")
	for _, metric := range []string{"kube_node_status_allocatable", "kube_node_status_capacity"} {
		add(nodeCPU, metric, "resource", "cpu")
		add(nodeMemory, metric, "resource", "memory")
	}

	return out
}

// isSample reports whether a value is a sample other than a stale marker.
func isSample(v float64) bool { return !math.IsNaN(v) }

// constant returns some minutes of one value.
func constant(value float64, n int) []float64 { return slices.Repeat([]float64{value}, n) }
