// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Fixed shares for figures that the simulation does not distinguish. They refer to memory without its active page
// cache; the remainder is kernel memory. usage = rss + cache + kernel, and the working set is usage minus the inactive
// part of the cache.
const (
	rssShare      = 0.9
	inactiveShare = 0.1
)

// cfsPeriod is the CFS accounting period in seconds.
const cfsPeriod = 0.1

// containerValues contains the measurements of one container at one time.
type containerValues struct {
	counters
	memory  float64 // working set in bytes, NaN if unknown
	cache   float64 // the part of it that is active page cache
	started float64 // Unix seconds
	ooms    float64
}

// cadvisorMetric is one metric of a container.
type cadvisorMetric struct {
	name  string
	value func(*containerValues) float64
	// limited marks metrics that exist only for containers with a CPU limit.
	limited bool
}

// cadvisorMetrics returns the container metrics that change over time.
func cadvisorMetrics() []cadvisorMetric {
	return []cadvisorMetric{
		{name: "container_cpu_usage_seconds_total", value: func(f *containerValues) float64 { return f.cpu }},
		{name: "container_cpu_cfs_periods_total", limited: true, value: func(f *containerValues) float64 { return f.periods }},
		{name: "container_cpu_cfs_throttled_periods_total", limited: true, value: func(f *containerValues) float64 { return f.throttled }},
		{name: "container_cpu_cfs_throttled_seconds_total", limited: true, value: func(f *containerValues) float64 { return f.throttledSeconds }},
		{name: "container_memory_working_set_bytes", value: func(f *containerValues) float64 { return f.memory }},
		{name: "container_memory_rss", value: func(f *containerValues) float64 { return pages(f.nonCache() * rssShare) }},
		{name: "container_memory_cache", value: func(f *containerValues) float64 { return pages(f.cache + f.nonCache()*inactiveShare) }},
		{name: "container_memory_total_active_file_bytes", value: func(f *containerValues) float64 { return f.activeFile() }},
		{name: "container_memory_usage_bytes", value: func(f *containerValues) float64 { return pages(f.memory + f.nonCache()*inactiveShare) }},
		{name: "container_start_time_seconds", value: func(f *containerValues) float64 { return f.started }},
		{name: "container_oom_events_total", value: func(f *containerValues) float64 { return f.ooms }},
	}
}

// nonCache returns the working set without its page cache.
func (f *containerValues) nonCache() float64 { return f.memory - f.cache }

// activeFile returns the active page cache in bytes, NaN if the working set is unknown.
func (f *containerValues) activeFile() float64 {
	if math.IsNaN(f.memory) {
		return f.memory
	}

	return pages(f.cache)
}

// pages rounds down to whole pages of 4 KiB.
func pages(v float64) float64 { return math.Floor(v/4096) * 4096 }

// binary rounds a counter of seconds to 1/1024, which is precise enough for all readers and cheap to store.
func binary(v float64) float64 { return math.Round(v*1024) / 1024 }

// emitCgroupLimits emits the requests and limits of a container as cgroup settings.
func emitCgroupLimits(emit sink, r corev1.ResourceRequirements) {
	emit("container_spec_cpu_period", cfsPeriod*1e6)
	emit("container_spec_memory_limit_bytes", limit(r, corev1.ResourceMemory))

	if cpu := limit(r, corev1.ResourceCPU); cpu > 0 {
		emit("container_spec_cpu_quota", math.Round(cpu*cfsPeriod*1e6))
	}
	if q, ok := r.Requests[corev1.ResourceCPU]; ok {
		emit("container_spec_cpu_shares", math.Max(2, float64(q.MilliValue())*1024/1000))
	}
}

// limit returns the limit of a resource, 0 if there is none.
func limit(r corev1.ResourceRequirements, name corev1.ResourceName) float64 {
	q, ok := r.Limits[name]
	if !ok {
		return 0
	}

	return q.AsApproximateFloat64()
}

// kubeletLabels returns the target labels of all series that a kubelet exposes.
func kubeletLabels(node string) []string {
	return []string{"job", JobKubelet, "instance", node, "node", node, "metrics_path", cadvisorPath}
}

// podCgroup returns the cgroup path of a pod with the systemd driver.
func podCgroup(pod *corev1.Pod) string {
	return "/kubepods.slice/kubepods-pod" + string(pod.UID) + ".slice"
}

func containerCgroup(pod *corev1.Pod, id string) string {
	return podCgroup(pod) + "/cri-containerd-" + id + ".scope"
}

// podSink returns a sink that adds the labels of a pod's cgroup.
func podSink(to sink, pod *corev1.Pod, node string) sink {
	return to.with(kubeletLabels(node)...).with("namespace", pod.Namespace, "pod", pod.Name, "id", podCgroup(pod))
}

func containerSink(to sink, pod *corev1.Pod, node, container, image, id string) sink {
	return to.with(kubeletLabels(node)...).with("namespace", pod.Namespace, "pod", pod.Name, "container", container,
		"image", image, "name", id, "id", containerCgroup(pod, id))
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
