// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Shares of the memory without its active page cache that stand for what the simulation does not tell apart: the rest of
// it is the kernel's own. usage = rss + cache + kernel, and the working set is usage less the inactive part of the cache.
const (
	rssShare      = 0.9
	inactiveShare = 0.1
)

// cfsPeriod is the accounting period of CPU limits in seconds.
const cfsPeriod = 0.1

// figures is what is measured of one container at one time.
type figures struct {
	counters
	memory  float64 // working set in bytes, NaN where it is not known
	cache   float64 // the part of it that is active page cache
	started float64 // Unix seconds
	ooms    float64
}

// cadvisorMetric is one metric of a container.
type cadvisorMetric struct {
	name  string
	value func(*figures) float64
	// limited marks metrics that only a container with a CPU limit has.
	limited bool
}

// cadvisorMetrics are those that change with time.
func cadvisorMetrics() []cadvisorMetric {
	return []cadvisorMetric{
		{name: "container_cpu_usage_seconds_total", value: func(f *figures) float64 { return f.cpu }},
		{name: "container_cpu_cfs_periods_total", limited: true, value: func(f *figures) float64 { return f.periods }},
		{name: "container_cpu_cfs_throttled_periods_total", limited: true, value: func(f *figures) float64 { return f.throttled }},
		{name: "container_cpu_cfs_throttled_seconds_total", limited: true, value: func(f *figures) float64 { return f.throttledSeconds }},
		{name: "container_memory_working_set_bytes", value: func(f *figures) float64 { return f.memory }},
		{name: "container_memory_rss", value: func(f *figures) float64 { return pages(f.held() * rssShare) }},
		{name: "container_memory_cache", value: func(f *figures) float64 { return pages(f.cache + f.held()*inactiveShare) }},
		{name: "container_memory_total_active_file_bytes", value: func(f *figures) float64 { return f.activeFile() }},
		{name: "container_memory_usage_bytes", value: func(f *figures) float64 { return pages(f.memory + f.held()*inactiveShare) }},
		{name: "container_start_time_seconds", value: func(f *figures) float64 { return f.started }},
		{name: "container_oom_events_total", value: func(f *figures) float64 { return f.ooms }},
	}
}

// held is the working set without its page cache.
func (f *figures) held() float64 { return f.memory - f.cache }

// activeFile is NaN where the working set is not known.
func (f *figures) activeFile() float64 {
	if math.IsNaN(f.memory) {
		return f.memory
	}
	return pages(f.cache)
}

// pages rounds down to whole pages.
func pages(v float64) float64 { return math.Floor(v/4096) * 4096 }

// binary rounds a counter of seconds to 1/1024: finer than anything reads it, and cheap to store.
func binary(v float64) float64 { return math.Round(v*1024) / 1024 }

// cadvisorConstants says what the limits of a container are.
func cadvisorConstants(emit sink, r corev1.ResourceRequirements) {
	emit("container_spec_cpu_period", cfsPeriod*1e6)
	emit("container_spec_memory_limit_bytes", limit(r, corev1.ResourceMemory))
	if cpu := limit(r, corev1.ResourceCPU); cpu > 0 {
		emit("container_spec_cpu_quota", math.Round(cpu*cfsPeriod*1e6))
	}
	if q, ok := r.Requests[corev1.ResourceCPU]; ok {
		emit("container_spec_cpu_shares", math.Max(2, float64(q.MilliValue())*1024/1000))
	}
}

// limit is 0 where there is none.
func limit(r corev1.ResourceRequirements, name corev1.ResourceName) float64 {
	q, ok := r.Limits[name]
	if !ok {
		return 0
	}
	return q.AsApproximateFloat64()
}

// kubeletLabels are those of everything that a kubelet exposes.
func kubeletLabels(node string) []string {
	return []string{"job", JobKubelet, "instance", node, "node", node, "metrics_path", cadvisorPath}
}

// podCgroup and containerCgroup are paths as the systemd driver makes them.
func podCgroup(pod *corev1.Pod) string {
	return "/kubepods.slice/kubepods-pod" + string(pod.UID) + ".slice"
}

func containerCgroup(pod *corev1.Pod, id string) string {
	return podCgroup(pod) + "/cri-containerd-" + id + ".scope"
}

// podSink and containerSink label the series of a pod's and of a container's cgroup.
func podSink(to sink, pod *corev1.Pod, node string) sink {
	return to.with(kubeletLabels(node)...).with("namespace", pod.Namespace, "pod", pod.Name, "id", podCgroup(pod))
}

func containerSink(to sink, pod *corev1.Pod, node, container, image, id string) sink {
	return to.with(kubeletLabels(node)...).with("namespace", pod.Namespace, "pod", pod.Name, "container", container,
		"image", image, "name", id, "id", containerCgroup(pod, id))
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
